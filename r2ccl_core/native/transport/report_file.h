// ReportFile: keeps one file in R2CC_STATUS_DIR up to date while the process lives, and removes it at the end.
//
// A separate thread writes it, so that a slow file system never holds up the transport: at once when something happened
// to a NIC, but at most every kLeastPauseMs, and every R2CC_STATUS_MS otherwise. A reader never sees half a file: each
// version is written beside it and renamed. A process that was killed leaves its file behind; the file contains the
// process's start time, by which readers recognise that it is gone.
#ifndef R2CCL_TRANSPORT_REPORT_FILE_H_
#define R2CCL_TRANSPORT_REPORT_FILE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/event_log.h"
#include "base/status.h"

namespace r2ccl {

class ReportFile {
 public:
  static constexpr int64_t kLeastPauseMs = 50;
  using Compose = std::function<std::string()>;

  // Makes `folder` if it is missing, and the first version of the file. `compose` is called by the file's thread, `log`
  // outlives the file. A folder that cannot be written is the user's mistake and says so in one line.
  static Status Create(const std::string& folder, int64_t pause_ms, EventLog* log, Compose compose,
                       std::unique_ptr<ReportFile>* file);
  // Waits for a write under way, then removes the file.
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  ReportFile(std::string path, int64_t pause_ms, EventLog* log, Compose compose);
  void Run(uint64_t seen);
  Status Write() const;

  const std::string path_;
  const int64_t pause_ms_;
  EventLog* const log_;
  const Compose compose_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace r2ccl

#endif  // R2CCL_TRANSPORT_REPORT_FILE_H_
