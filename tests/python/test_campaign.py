"""bench/wild/campaign.py: which cases there are, which are left, and what the totals count."""
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench/wild"))
import campaign


def outcome(change, predicted, measured, low, high):
    return {"change": change, "predicted": predicted, "measured": measured, "low": low, "high": high, "failed": None,
            "error": None if measured is None else predicted / measured - 1}


OUTCOMES = [outcome("num_workers=2", 2.0, 1.9, 1.8, 2.2), outcome("num_workers=1", 1.0, 1.05, 0.9, 1.02),
            outcome("num_workers=4", 3.0, None, 2.0, 4.0)]
ROWS = [{"change": one["change"], "overrides": {"num_workers": 2}, "ratio": one["predicted"], "low": one["low"],
         "high": one["high"], "loading_only": False} for one in OUTCOMES[:2]]
FOUND = ({"what_if": {"rows": ROWS, "settings": {"num_workers": 0}}}, {"outcomes": OUTCOMES, "runs": 9, "void_runs": 2})


def test_changes_count_by_their_effect_and_intervals_by_all_that_was_measured():
    assert campaign.totals([FOUND]) == [
        "1 cases; void runs: 2 of 9; failed changes: 0",
        "changes that count: 1; median error 5.3%, 95th percentile 5.3%, worst 5.3%",
        "within their 90% intervals: 1 of 2 (50%)",
        "advice: 1 followed, 1 gained what the lower end says or more"]


OTHERS = [("plain", "sleep", 1), ("plain", "sleep", 2), *(("plain", "cpu", workers) for workers in (0, 1, 2))]


def test_a_complete_case_is_not_run_again_and_none_after_the_time(tmp_path, monkeypatch, capsys):
    begun = []
    monkeypatch.setattr(campaign, "version", lambda _: "1.0")
    monkeypatch.setattr(campaign, "verify", lambda folder, case, options: begun.append(case))
    runs = tmp_path / "plain-sleep-0/runs"
    runs.mkdir(parents=True)
    for name, record in zip(("predictions", "verification"), FOUND):
        (runs / f"{name}.json").write_text(json.dumps(record))
    for minutes, expected in (("0", []), ("1", OTHERS)):
        monkeypatch.setattr(sys, "argv", ["campaign.py", str(tmp_path), "--minutes", minutes, "--only", "plain"])
        assert campaign.main() == 1 and begun == expected
    assert "5 cases are not complete" in capsys.readouterr().out


@pytest.mark.parametrize("name", campaign.NOT_PREDICTED)
def test_trials_that_nothing_is_predicted_for_are_no_cases(name):
    assert name in campaign.TRIALS and not campaign.cases([name])
