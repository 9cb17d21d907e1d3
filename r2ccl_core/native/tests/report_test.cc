// The status file: what it says, when it changes, and that it goes away.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "pair.h"
#include "transport/report_file.h"

namespace r2ccl {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "r2ccl-report-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_; }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path_)) files.push_back(entry.path().string());
    return files;
  }
  std::string Only() const {
    auto files = Files();
    EXPECT_EQ(files.size(), 1u);
    std::ifstream file(files.front());
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Json, EscapesAndSeparates) {
  Json json;
  json.Open('{');
  json.Field("a\\\"\n", "x\ty\x01\"");
  json.Key("list").Open('[');
  json.Value(1);
  json.Value(-2.5);
  json.Open('{');
  json.Close('}');
  json.Value(true);
  json.Close(']');
  json.Field("big", uint64_t{18446744073709551615u});
  json.Close('}');
  EXPECT_EQ(json.text(),
            "{\"a\\\\\\\"\\u000a\":\"x\\u0009y\\u0001\\\"\",\"list\":[1,-2.5,{},true],\"big\":18446744073709551615}");
}

TEST(Report, FileFollowsThePathsAndGoesAway) {
  Folder folder;
  Params params = QuickParams(2);
  params.status_dir = folder.path() + "/made";
  params.status_ms = 3600000;  // so that what is seen was written because something happened
  Params quiet = QuickParams(2);
  {
    Pair pair(params, quiet, 3);
    ASSERT_EQ(pair.sender->report_status().message(), "");
    ASSERT_EQ(pair.Open().message(), "");
    auto text = [&] {
      // Beside it may lie the draft of the next version.
      std::ifstream file(pair.sender->report_path());
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_TRUE(Until([&] { return Has(text(), "\"connections\":1,\"failed\":0,\"paths_up\":3,\"paths_down\":0"); }));
    EXPECT_TRUE(Has(text(), "\"pid\":" + std::to_string(getpid())));
    EXPECT_TRUE(Has(text(), "\"R2CC_STATUS_DIR\":\"" + params.status_dir + "\"")) << text();
    EXPECT_TRUE(Has(text(), "\"R2CC_MODE\":2"));
    pair.relay->Set(1, Cable::kRefused);
    EXPECT_TRUE(
        Until([&] { return Has(text(), "\"state\":\"down\",\"link_up\":true,\"paths_up\":0,\"paths_down\":1"); }));
    EXPECT_TRUE(Until([&] { return Has(text(), "\"kind\":\"path_down\",\"nic\":\"lo\",\"peer\":\"127.0.3.2\""); }));
    pair.relay->Set(1, Cable::kGood);
    EXPECT_TRUE(Until([&] { return Has(text(), "\"kind\":\"path_returned\""); }));
  }
  EXPECT_TRUE(fs::is_empty(params.status_dir));
}

TEST(Report, TellsWhatHappenedBeforeItsThreadRan) {
  Folder folder;
  EventLog log;
  std::atomic<int> composed{0};
  auto compose = [&] {
    if (++composed == 1) log.Add("early", "", "", "");
    return std::to_string(composed);
  };
  std::unique_ptr<ReportFile> file;
  ASSERT_TRUE(ReportFile::Create(folder.path(), 3600000, &log, compose, &file).ok());
  EXPECT_TRUE(Until([&] { return composed >= 2; }));
}

TEST(Report, IsWrittenNowAndThenAndNotTooOften) {
  Folder folder;
  EventLog log;
  std::atomic<int> composed{0};
  std::unique_ptr<ReportFile> file;
  ASSERT_TRUE(ReportFile::Create(folder.path(), 50, &log, [&] { return std::to_string(++composed); }, &file).ok());
  EXPECT_TRUE(Until([&] { return composed >= 3; })) << "without any event";
  int64_t begin_ns = NowNs();
  int before = composed;
  while (NowNs() - begin_ns < 300 * kMillisecond) log.Add("flood", "", "", "");
  int written = composed - before;
  auto elapsed_ms = static_cast<int>((NowNs() - begin_ns) / kMillisecond);  // more than meant on a busy machine
  EXPECT_LE(written, elapsed_ms / ReportFile::kLeastPauseMs + 1);
  file.reset();
  EXPECT_TRUE(folder.Files().empty());
}

TEST(Report, AFolderThatCannotBeWrittenIsOneLine) {
  EventLog log;
  std::unique_ptr<ReportFile> file;
  Status status = ReportFile::Create("/proc/nowhere", 50, &log, [] { return std::string(); }, &file);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("R2CC_STATUS_DIR: cannot write /proc/nowhere")) << status.message();
  Params params = QuickParams(2);
  params.status_dir = "/proc/nowhere";
  Pair pair(params);
  EXPECT_FALSE(pair.sender->report_status().ok());
  EXPECT_EQ(pair.Open().message(), "") << "the transport works all the same";
}

// A process that ends without a word to its transport, as NCCL does: exit() takes the file along, a crash leaves it.
TEST(Report, ExitRemovesTheFileAndACrashLeavesIt) {
  for (bool crash : {false, true}) {
    Folder folder;
    pid_t child = fork();
    if (child == 0) {
      // Never destroyed, as in the plugin: its thread runs on while the process ends.
      static auto* const log = new EventLog();
      static auto* const file = new std::unique_ptr<ReportFile>();
      if (!ReportFile::Create(folder.path(), 50, log, [] { return std::string("{}"); }, file).ok()) _exit(1);
      if (crash) _exit(0);
      exit(0);
    }
    int result = 0;
    ASSERT_EQ(waitpid(child, &result, 0), child);
    ASSERT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    EXPECT_EQ(folder.Files().size(), crash ? 1u : 0u);
    if (crash) {
      EXPECT_TRUE(Has(folder.Files().front(), "-" + std::to_string(child) + "-"));
      EXPECT_EQ(folder.Only(), "{}");
    }
  }
}

}  // namespace
}  // namespace r2ccl
