// Helpers that check results, and the shared fixture.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in.good()) << file << " cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

Json parse_json(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_discarded()) return json;
  ADD_FAILURE() << "not one JSON document:\n" << text;
  return nullptr;
}

std::vector<Json> parse_json_lines(const std::string& text) {
  std::vector<Json> all;
  for (const auto& line : lines_of(text)) all.push_back(parse_json(line));
  return all;
}

testing::AssertionResult succeeded(const Result& result) {
  if (result.exit_code == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "exit " << result.exit_code << ", signal " << result.signal << "\n"
         << result.err;
}

testing::AssertionResult refused(const Result& result, int code,
                                 const std::vector<std::string>& parts, bool alone) {
  const auto fails = [&](const std::string& why) {
    return testing::AssertionFailure() << why << "\nexit " << result.exit_code << ", signal "
                                       << result.signal << "\n--- stderr\n"
                                       << result.err << "--- stdout\n"
                                       << result.out;
  };
  if (result.exit_code != code) return fails("expected exit code " + std::to_string(code));
  if (!result.out.empty()) return fails("something stands on stdout");
  const auto lines = lines_of(result.err);
  if (count_of("\n" + result.err, "\nmillrace: ") != 1) return fails("expected one error line");
  if (alone && lines.size() > 2) return fails("expected one line and a hint, nothing else");
  if (lines.size() < 2) return fails("expected a hint");
  const std::string& line = lines[lines.size() - 2];
  if (!line.starts_with("millrace: ")) return fails("the error is not the line before the last");
  if (line.starts_with("millrace: millrace:")) return fails("it names itself twice");
  if (!lines.back().starts_with("  hint: ")) return fails("the last line is no hint");
  for (const auto& part : parts)
    if (line.find(part) == std::string::npos && lines.back().find(part) == std::string::npos)
      return fails("neither line nor hint says \"" + part + "\"");
  return testing::AssertionSuccess();
}

testing::AssertionResult no_temporaries(const fs::path& folder) {
  if (!fs::exists(folder)) return testing::AssertionSuccess();
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension().string().starts_with(".tmp"))
      return testing::AssertionFailure() << entry.path() << " was left";
  return testing::AssertionSuccess();
}

ProgramTest::ProgramTest() {
  std::string pattern = (fs::temp_directory_path() / "millrace-program-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = pattern;
}

ProgramTest::~ProgramTest() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string ProgramTest::data() {
  if (!fs::exists(in("data"))) write_idx(in("data"));
  return in("data").string();
}

Arguments ProgramTest::simulated(const std::string& name, const Arguments& more) {
  return Arguments{"train",
                   "mnist-lenet",
                   "data.path=" + data(),
                   "train.device=simulated",
                   "simulated.update_ms=1",
                   "loader.batch=20",
                   "train.epochs=1",
                   "--run",
                   in(name).string()} +
         more;
}

Arguments ProgramTest::training(const std::string& name, const Arguments& more) {
  return Arguments{"train",         "mnist-lenet-plain", "data.path=" + data(), "train.threads=1",
                   "train.lr=0.02", "loader.batch=20",   "eval.batch=25",       "train.epochs=1",
                   "--run",         in(name).string()} +
         more;
}

Arguments ProgramTest::bench(const Arguments& more) {
  return Arguments{"bench", "mnist-lenet", "data.path=" + data(), "loader.batch=32"} + more;
}

namespace {

bool has_type(const Json& value, const std::string& type) {
  return type == "null"      ? value.is_null()
         : type == "boolean" ? value.is_boolean()
         : type == "integer" ? value.is_number_integer()
         : type == "number"  ? value.is_number()
         : type == "string"  ? value.is_string()
         : type == "array"   ? value.is_array()
                             : type == "object" && value.is_object();
}

}  // namespace

const Json& summary_schema() {
  static const Json schema =
      parse_json(read_file(fs::path(MILLRACE_SOURCE_DIR) / "docs/reference/summary.schema.json"));
  return schema;
}

std::string schema_problem(const Json& value, const Json& schema, const std::string& path) {
  const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
  if (std::none_of(types.begin(), types.end(),
                   [&](const Json& type) { return has_type(value, type.get<std::string>()); }))
    return path + " is not of type " + types.dump();
  std::string problem;
  if (schema.contains("required") && value.is_object())
    for (const Json& key : schema["required"])
      if (!value.contains(key)) problem = path + " lacks " + key.get<std::string>();
  for (const auto& [key, part] : value.items()) {
    if (!problem.empty() || !value.is_structured()) break;
    const char* const each = value.is_array() ? "items" : "additionalProperties";
    if (schema.contains("properties") && schema["properties"].contains(key))
      problem = schema_problem(part, schema["properties"][key], path + "." + key);
    else if (schema.contains(each))
      problem = schema_problem(part, schema[each], path + "." + key);
    else
      problem = path + "." + key + " is not in the schema";
  }
  return problem;
}

Json ProgramTest::summary(const std::string& name) const {
  Json summary = parse_json(read_file(in(name) / "summary.json"));
  if (summary["command"] == "train") {
    EXPECT_EQ(schema_problem(summary, summary_schema()), "") << name;
  }
  return summary;
}

}  // namespace millrace::program_test
