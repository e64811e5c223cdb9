// Batches of a data set, without the program and without LibTorch.
#include <millrace/loader.h>
#include <millrace/plan.h>

#include <cstdio>

int main(int argc, char** argv) try {
  using namespace millrace;
  DataOptions data;
  data.path = argc > 1 ? argv[1] : "data/digits";
  const std::shared_ptr<const Reader> reader = open_reader(data);
  Recipe recipe(op_declarations());
  recipe.set("augment+=random_affine{degrees=15}");
  const Source source{reader->info().size, reader->info().channels};
  const auto plan = compile_plan(recipe.augment(), source);
  Loader loader(reader, plan, {.workers = 2, .batch = 64});
  while (const Batch batch = loader.next())  // count() samples of 32-bit floats, at batch.data()
    std::printf("batch %d: %d samples, first label %d\n", static_cast<int>(batch.index()),
                static_cast<int>(batch.count()), static_cast<int>(batch.labels()[0]));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
