// Report: what a process knows about its NICs at one moment, as values and as JSON. The file in R2CC_STATUS_DIR
// contains one; its readers are in r2ccl_core/status.
#ifndef R2CCL_BASE_REPORT_H_
#define R2CCL_BASE_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/event_log.h"
#include "base/params.h"
#include "base/process.h"

namespace r2ccl {

constexpr int kReportSchema = 1;  // raised when a field changes its meaning or goes away
constexpr size_t kReportEvents = 512;
constexpr size_t kReportPeers = 256;

struct NicReport {
  std::string name;
  std::string address;
  std::string state;  // up, partial, held, down, or idle where no connection uses it
  bool link_up = true;
  int paths_up = 0;
  int paths_down = 0;  // held ones included
  int paths_held = 0;
  int paths_never_up = 0;  // of those that are down: silent since their connections began, and told of as that
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t acknowledged_bytes = 0;
  int64_t in_flight_bytes = 0;
  double drain_bytes_s = 0;
  // Of its paths and bytes those by RDMA.
  int rdma_paths = 0;
  uint64_t rdma_sent_bytes = 0;
  uint64_t rdma_received_bytes = 0;
  uint64_t rdma_written_bytes = 0;  // of those sent, without a copy
};

// Whose fault the last loss of a path over a NIC to a peer was.
struct VerdictReport {
  int64_t t_ns = 0;
  std::string nic;
  std::string peer;
  std::string verdict;  // local_nic, remote_nic, link, unknown, works
  std::string why;
  bool standing = true;  // nothing has come back since
};

// The connections that go one way to (or come from) one peer, together.
struct PeerReport {
  int connections = 0;
  int failed = 0;  // not closed by their user yet
  int paths_up = 0;
  int paths_down = 0;  // held ones included
  int paths_held = 0;
};
using PeerKey = std::pair<std::string, std::string>;  // "send" or "receive", the peer's address on its first path

struct Report {
  Process process;
  int64_t started_ns = 0;  // CLOCK_REALTIME
  int64_t written_ns = 0;
  Params params;
  std::vector<NicReport> nics;
  std::map<PeerKey, PeerReport> peers;
  uint64_t replayed_chunks = 0;
  uint64_t trial_chunks = 0;
  uint64_t duplicate_chunks = 0;
  uint64_t corrupt_chunks = 0;
  std::vector<std::pair<std::string, uint64_t>> strangers;  // turned away, by kind (strangers.h)
  uint64_t own_probes = 0;  // probes of other processes of ours, and streams that they gave up before a greeting
  std::vector<VerdictReport> verdicts;
  uint64_t events_total = 0;
  std::vector<Event> events;
};

std::string EncodeReport(const Report& report);

}  // namespace r2ccl

#endif  // R2CCL_BASE_REPORT_H_
