// Tests of the libraries as their users link them: what they throw is caught by its type.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <typeinfo>

#include "millrace/error.h"
#include "millrace/loader.h"
#if MILLRACE_HAS_TORCH
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/strategy_options.h"
#endif

namespace millrace::tools {
namespace {

/// Runs `call` and returns what it throws as `Exception`. The type's information must be the very
/// object that this executable refers to: g++ also compares names, other runtimes compare
/// addresses.
template <class Exception, class Call>
std::string caught(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    EXPECT_EQ(&typeid(error), &typeid(Exception)) << "each library has a typeinfo of its own";
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "caught as another type: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Library, ItsExceptionsAreCaughtByType) {
  DataOptions nowhere;
  nowhere.path = "/no/such/folder";
  EXPECT_NE(caught<DataError>([&] { open_reader(nowhere); }).find(nowhere.path), std::string::npos);
  EXPECT_NE(caught<UsageError>([] { Shuffle::parse("sorted"); }).find("sorted"), std::string::npos);
}

#if MILLRACE_HAS_TORCH
TEST(Library, ExceptionsOfTheTorchLibraryAreCaughtByType) {
  void* const library = dlopen(MILLRACE_TORCH_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(library, nullptr) << dlerror();
  using Make = train::Strategy*(const train::StrategyOptions*);
  auto* const make = reinterpret_cast<Make*>(dlsym(library, "millrace_make_strategy"));
  ASSERT_NE(make, nullptr);
  train::StrategyOptions options;
  options.sample.dtype = DType::f16;
  EXPECT_NE(caught<UsageError>([&] { delete make(&options); }).find("takes f32"),
            std::string::npos);
}
#endif

}  // namespace
}  // namespace millrace::tools
