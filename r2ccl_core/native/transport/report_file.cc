// Writing and removing of the report's file.
#include "transport/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "base/guard.h"
#include "base/mutex.h"
#include "base/process.h"
#include "net/socket.h"

namespace r2ccl {
namespace {

std::string DraftOf(const std::string& path) { return path + ".tmp"; }

// NCCL never ends its plugin, so what is left is removed when the process ends in good order.
struct Leftovers {
  Mutex mutex;
  std::map<std::string, pid_t> paths;  // with the owner: a child that was forked must not remove its parent's
};

Leftovers& leftovers() {
  static Leftovers* const instance = [] {
    auto* made = new Leftovers();  // never destroyed: other threads may be writing while the process ends
    std::atexit([] {
      Leftovers& left = leftovers();
      MutexLock lock(left.mutex);
      for (const auto& [path, owner] : left.paths) {
        if (owner != getpid()) continue;
        unlink(path.c_str());
        unlink(DraftOf(path).c_str());
      }
      left.paths.clear();
    });
    return made;
  }();
  return *instance;
}

std::string FileName() {
  static std::atomic<int> count{0};  // a process may have several transports
  Process process = ThisProcess();
  return "r2ccl-" + process.host + "-" + std::to_string(process.pid) + "-" + std::to_string(process.start_ticks) + "-" +
         std::to_string(count++) + ".json";
}

Status CannotServe(const std::string& path) {
  return {Code::kInvalidArgument,
          "R2CC_STATUS_DIR: cannot write " + path + ": " + std::strerror(errno) + "; name a folder of your own"};
}

}  // namespace

ReportFile::ReportFile(std::string path, int64_t pause_ms, EventLog* log, Compose compose)
    : path_(std::move(path)), pause_ms_(pause_ms), log_(log), compose_(std::move(compose)) {}

Status ReportFile::Create(const std::string& folder, int64_t pause_ms, EventLog* log, Compose compose,
                          std::unique_ptr<ReportFile>* file) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return CannotServe(folder);
  std::unique_ptr<ReportFile> made(new ReportFile(folder + "/" + FileName(), pause_ms, log, std::move(compose)));
  {
    MutexLock lock(leftovers().mutex);
    leftovers().paths[made->path_] = getpid();
  }
  uint64_t seen = log->added().Count();  // what comes while the thread starts is news to it
  Status status = made->Write();
  if (!status.ok()) return status;
  try {
    made->thread_ = std::thread([raw = made.get(), seen] { raw->Run(seen); });
  } catch (const std::system_error& error) {
    return {Code::kSystem, std::string("R2CC_STATUS_DIR: a thread for the file: ") + error.what()};
  }
  *file = std::move(made);
  return {};
}

ReportFile::~ReportFile() {
  stopping_.store(true);
  log_->added().Notify();
  if (thread_.joinable()) thread_.join();
  MutexLock lock(leftovers().mutex);
  if (leftovers().paths.erase(path_) > 0) unlink(path_.c_str());
}

void ReportFile::Run(uint64_t seen) {
  while (!stopping_.load()) {
    log_->added().Wait(seen, std::chrono::milliseconds(pause_ms_));
    seen = log_->added().Count();
    if (stopping_.load()) return;
    // A full disk, a folder that went away or a want of memory is no reason to stop; the next turn tries again.
    [[maybe_unused]] Status written = Guard(Status(), [this] { return Write(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(kLeastPauseMs));
  }
}

Status ReportFile::Write() const {
  std::string text = compose_();
  std::string draft = DraftOf(path_);
  Fd fd;
  {
    // A draft that is begun while the process ends would stay.
    MutexLock lock(leftovers().mutex);
    if (!leftovers().paths.contains(path_)) return CannotServe(path_);
    fd = Fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  }
  if (!fd.valid()) return CannotServe(draft);
  for (size_t done = 0; done < text.size();) {
    ssize_t written = write(fd.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      Status status = CannotServe(draft);
      unlink(draft.c_str());
      return status;
    }
    done += static_cast<size_t>(written);
  }
  // Under the lock of the removal at the process's end, or a file would appear after it.
  MutexLock lock(leftovers().mutex);
  if (!leftovers().paths.contains(path_) || rename(draft.c_str(), path_.c_str()) != 0) {
    Status status = CannotServe(path_);
    unlink(draft.c_str());
    return status;
  }
  return {};
}

}  // namespace r2ccl
