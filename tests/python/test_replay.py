"""The replay of a DataLoader gives what can be computed by hand."""
import pytest

from pymillrace._predict import DataLoaderInput, Demand, replay, without_spinning


def blocked(seconds):
    return Demand(blocked_s=seconds)


def cpu(seconds, threads=1):
    return Demand(seconds, 0, threads)


LOOP = DataLoaderInput(workers=1, prefetch=2, batch=4, cores=8, fetch=(blocked(0.030),), update=blocked(0.020))


def test_without_workers_load_and_update_take_turns():
    rates = replay(LOOP.replace(workers=0))
    assert rates.images_per_s == pytest.approx(4 / 0.050)
    assert rates.load_s == pytest.approx(0.030) and rates.update_s == pytest.approx(0.020)


def test_workers_share_the_batches_until_the_update_binds():
    assert replay(LOOP).images_per_s == pytest.approx(4 / 0.030)
    assert replay(LOOP).load_s == pytest.approx(0.010)
    assert replay(LOOP.replace(workers=2)).images_per_s == pytest.approx(4 / 0.020)
    assert replay(LOOP.replace(workers=2)).load_s == pytest.approx(0)
    fast = LOOP.replace(update=blocked(0.001))
    for workers in (1, 2, 3, 4):
        assert replay(fast.replace(workers=workers)).images_per_s == pytest.approx(4 * workers / 0.030)


def test_sending_is_a_stage_of_its_own_and_receiving_belongs_to_next():
    sends = LOOP.replace(send=blocked(0.040), update=blocked(0.001))
    assert replay(sends).images_per_s == pytest.approx(4 / 0.040)  # the feeder thread binds, not fetch + send
    receives = LOOP.replace(receive=cpu(0.015))
    assert replay(receives).images_per_s == pytest.approx(4 / 0.035)
    assert replay(receives).load_s == pytest.approx(0.015)
    assert replay(receives.replace(workers=0)).images_per_s == pytest.approx(4 / 0.050)  # there is no queue


def test_next_waits_for_the_threads_that_hand_over_tensors_whatever_the_worker_does():
    waits = LOOP.replace(tensor_wait_s=0.015)
    assert replay(waits).images_per_s == pytest.approx(4 / 0.035) and replay(waits).load_s == pytest.approx(0.015)


def test_next_waits_for_a_workers_lock_while_that_worker_makes_another_batch():
    locked = LOOP.replace(receive=blocked(0.020), update=blocked(0.015))
    # The worker has made the one batch that it may make ahead 15 ms after the update, and holds its lock until then.
    assert replay(locked).images_per_s == pytest.approx(4 / 0.030, rel=0.01)
    assert replay(locked).load_s == pytest.approx(0.015, rel=0.02)
    # While its only batch is received, it has none to make.
    assert replay(locked.replace(prefetch=1)).images_per_s == pytest.approx(4 / 0.030)
    assert replay(locked.replace(prefetch=1)).load_s == pytest.approx(0.015)
    # One that is asked for a batch every 120 ms has long made those that it may make ahead.
    assert replay(locked.replace(workers=8)).images_per_s == pytest.approx(4 / 0.015)
    # One that always has batches to make keeps next() waiting for the whole time.
    assert replay(locked.replace(fetch=(blocked(0.060),), update=blocked(0.005))).load_s == pytest.approx(0.055)
    assert replay(locked.replace(prefetch=8, receive=blocked(0.014))).load_s == pytest.approx(0.015, rel=0.02)


def test_a_thread_that_takes_batches_ahead_overlaps_with_the_update():
    ahead = LOOP.replace(workers=0, ahead=1)
    assert replay(ahead).images_per_s == pytest.approx(4 / 0.030) and replay(ahead).load_s == pytest.approx(0.010)
    slow = replay(ahead.replace(update=blocked(0.050)))
    assert slow.images_per_s == pytest.approx(4 / 0.050) and slow.load_s == pytest.approx(0)
    # Receiving is the thread's part, too: 15 ms of it hide behind an update of 20 ms.
    receives = LOOP.replace(workers=2, receive=cpu(0.015), ahead=1)
    assert replay(receives).images_per_s == pytest.approx(4 / 0.020)
    assert replay(receives.replace(ahead=0)).images_per_s == pytest.approx(4 / 0.035)
    # One core is shared, and room for more batches than one does not matter where all take equally long.
    both = LOOP.replace(workers=0, cores=1, fetch=(cpu(0.030),), update=cpu(0.020), ahead=1)
    assert replay(both).images_per_s == pytest.approx(4 / 0.050)
    assert replay(both.replace(ahead=4)).images_per_s == pytest.approx(4 / 0.050)
    # Batches that take long in turn are made up for by those that are queued.
    uneven = ahead.replace(fetch=(blocked(0.002), blocked(0.002), blocked(0.002), blocked(0.074)), update=blocked(0.02))
    assert replay(uneven.replace(ahead=4)).images_per_s > 1.2 * replay(uneven).images_per_s


def test_busy_cores_are_those_of_all_threads():
    assert replay(LOOP).busy_cores == 0
    both = LOOP.replace(fetch=(cpu(0.030),), update=cpu(0.015))
    assert replay(both).busy_cores == pytest.approx(1.5, rel=0.01)
    assert replay(both.replace(cores=1)).busy_cores == pytest.approx(1)


def test_one_outstanding_batch_per_worker_makes_it_wait_for_the_hand_out():
    # With prefetch 1 the worker begins its next batch when the one before is handed out, so that update and fetch
    # overlap, but sending and receiving do not overlap with fetching.
    one = LOOP.replace(prefetch=1, send=blocked(0.010), receive=cpu(0.005))
    assert replay(one).images_per_s == pytest.approx(4 / 0.045)
    assert replay(one.replace(prefetch=2)).images_per_s == pytest.approx(4 / 0.030)


def test_a_worker_pauses_after_a_batch_unless_it_has_nothing_to_make():
    rests = LOOP.replace(pause_s=0.005)
    assert replay(rests).images_per_s == pytest.approx(4 / 0.035)
    assert replay(rests.replace(workers=0)).images_per_s == replay(LOOP.replace(workers=0)).images_per_s
    # With prefetch 1 it has rested when the batch is handed out, 10 ms after it was made.
    late = rests.replace(prefetch=1, receive=cpu(0.010))
    assert replay(late).images_per_s == replay(late.replace(pause_s=0)).images_per_s == pytest.approx(4 / 0.040)


def test_batches_are_handed_out_in_order():
    # Worker 0 makes the slow batches and worker 1 the fast ones: the rate is that of the slow worker, twice over.
    uneven = LOOP.replace(workers=2, fetch=(blocked(0.060), blocked(0.010)), update=blocked(0.001))
    assert replay(uneven).images_per_s == pytest.approx(2 * 4 / 0.060)
    # Three workers take turns with the slow ones: each makes a slow and a fast batch in 70 ms while six are handed out.
    assert replay(uneven.replace(workers=3)).images_per_s == pytest.approx(6 * 4 / 0.070, rel=0.03)


def test_prefetch_bridges_uneven_batches():
    # Every fourth batch takes 50 ms, the others 10 ms: on average as long as the update.
    uneven = LOOP.replace(workers=1, fetch=(blocked(0.050), *[blocked(0.010)] * 3), update=blocked(0.020))
    assert replay(uneven.replace(prefetch=8)).images_per_s == pytest.approx(4 / 0.020)
    assert replay(uneven.replace(prefetch=1)).images_per_s < 0.8 * 4 / 0.020


def test_cores_are_shared():
    busy = LOOP.replace(fetch=(cpu(0.030),), update=blocked(0.001))
    for workers, cores in ((1, 1), (2, 1), (4, 2), (8, 2), (3, 8)):
        rates = replay(busy.replace(workers=workers, cores=cores))
        assert rates.images_per_s == pytest.approx(4 * min(workers, cores) / 0.030, rel=0.02)
    # Fetch and update together take 50 ms of one core.
    assert replay(LOOP.replace(cores=1, fetch=(cpu(0.030),), update=cpu(0.020))).images_per_s == pytest.approx(
        4 / 0.050)
    # Three threads share two cores for 30 ms, in which the update ends and the worker has done 20 of its 30 ms; the
    # worker runs on alone for 10 ms.
    both = LOOP.replace(cores=2, fetch=(cpu(0.030),), update=cpu(0.020, threads=2))
    assert replay(both.replace(spins=False)).images_per_s == pytest.approx(4 / 0.040)


def test_workers_that_mostly_wait_do_not_compute_in_step():
    # Four workers compute for 2 of 32 ms each. All at once they would take 4 ms on two cores, and 34 ms per batch.
    waits = LOOP.replace(workers=4, cores=2, fetch=(Demand(0.002, 0.030),), update=blocked(0.001))
    assert replay(waits).images_per_s == pytest.approx(4 * 4 / 0.032, rel=0.01)


def test_many_workers_are_no_deep_recursion():
    # While the loop waits for a slow batch all others arrive, and its body takes no time.
    for workers in (128, 256):
        slow = (blocked(0.300), *[blocked(0.001)] * (workers - 1))
        many = LOOP.replace(workers=workers, prefetch=8, fetch=slow, update=blocked(0))
        assert replay(many).images_per_s == pytest.approx(4 * workers / 0.300)
    assert replay(LOOP.replace(workers=128, cores=2, fetch=(cpu(0.030),))).images_per_s == pytest.approx(
        4 * 1 / 0.020, rel=0.02)  # two cores make a batch in 15 ms, the update binds


def test_impossible_input_is_refused():
    for wrong in ({"cores": 0}, {"batch": 0}, {"fetch": ()}, {"prefetch": 0}, {"steps": 0},
                  {"fetch": (blocked(0),), "update": blocked(0)}):
        with pytest.raises(ValueError):
            replay(LOOP.replace(**wrong))


def test_threads_of_a_pool_get_on_while_all_of_them_have_a_core():
    # Beside the worker's 45 ms on two thirds of a core, two threads do 15 of their 20 ms, and the rest in 5 ms alone.
    both = LOOP.replace(cores=2, fetch=(cpu(0.030),), update=cpu(0.020, threads=2))
    assert replay(both).images_per_s == pytest.approx(4 / 0.050)
    alone, at_ease = (replay(both.replace(workers=0, spins=spins)) for spins in (True, False))
    assert (alone.images_per_s, alone.load_s, alone.update_s) == (at_ease.images_per_s, at_ease.load_s, at_ease.update_s)


def test_the_time_for_which_a_pool_waits_for_its_own_threads_is_no_demand():
    works = LOOP.replace(workers=2, cores=2, fetch=(cpu(0.080),), update=cpu(0.014, threads=2))
    measured = works.replace(update=cpu(0.040, threads=2))  # what its threads computed, spinning included
    found = without_spinning(measured, replay(works).update_s)
    assert found.update.cpu_s == pytest.approx(0.014, rel=0.03)
    alone = measured.replace(workers=0)
    assert without_spinning(alone, 0.001) == alone  # no worker takes cores away
    single = measured.replace(update=cpu(0.040))
    assert without_spinning(single, 0.001) == single
