// A report as JSON.
#include "base/report.h"

#include "base/json.h"
#include "net/wire.h"

#ifndef R2CCL_VERSION
#error "the build says R2CCL_VERSION"
#endif

namespace r2ccl {
namespace {

void EncodeProcess(const Process& process, Json* json) {
  json->Key("process").Open('{');
  json->Field("host", process.host);
  json->Field("program", process.program);
  json->Field("boot_id", process.boot_id);
  json->Field("pid_namespace", process.pid_namespace);
  json->Field("pid", process.pid);
  json->Field("start_ticks", process.start_ticks);
  json->Close('}');
}

void EncodeParams(const Params& params, Json* json) {
  json->Key("config").Open('{');
#define R2CCL_ENCODE(field, name, ...) json->Field(name, params.field);
  R2CCL_PARAMS(R2CCL_ENCODE)
  R2CCL_TEXT_PARAMS(R2CCL_ENCODE)
#undef R2CCL_ENCODE
  json->Close('}');
}

void EncodeNic(const NicReport& nic, Json* json) {
  json->Open('{');
  json->Field("name", nic.name);
  json->Field("address", nic.address);
  json->Field("state", nic.state);
  json->Field("link_up", nic.link_up);
  json->Field("paths_up", nic.paths_up);
  json->Field("paths_down", nic.paths_down);
  json->Field("paths_held", nic.paths_held);
  json->Field("paths_never_up", nic.paths_never_up);
  json->Field("sent_bytes", nic.sent_bytes);
  json->Field("received_bytes", nic.received_bytes);
  json->Field("acknowledged_bytes", nic.acknowledged_bytes);
  json->Field("in_flight_bytes", nic.in_flight_bytes);
  json->Field("drain_bytes_s", nic.drain_bytes_s);
  json->Field("rdma_paths", nic.rdma_paths);
  json->Field("rdma_sent_bytes", nic.rdma_sent_bytes);
  json->Field("rdma_received_bytes", nic.rdma_received_bytes);
  json->Field("rdma_written_bytes", nic.rdma_written_bytes);
  json->Close('}');
}

void EncodePeer(const PeerKey& key, const PeerReport& peer, Json* json) {
  json->Open('{');
  json->Field("direction", key.first);
  json->Field("peer", key.second);
  json->Field("connections", peer.connections);
  json->Field("failed", peer.failed);
  json->Field("paths_up", peer.paths_up);
  json->Field("paths_down", peer.paths_down);
  json->Field("paths_held", peer.paths_held);
  json->Close('}');
}

void EncodeVerdict(const VerdictReport& verdict, Json* json) {
  json->Open('{');
  json->Field("t_ns", verdict.t_ns);
  json->Field("nic", verdict.nic);
  json->Field("peer", verdict.peer);
  json->Field("verdict", verdict.verdict);
  json->Field("why", verdict.why);
  json->Field("standing", verdict.standing);
  json->Close('}');
}

void EncodeEvent(const Event& event, Json* json) {
  json->Open('{');
  json->Field("t_ns", event.wall_ns);
  json->Field("kind", event.kind);
  json->Field("nic", event.nic);
  json->Field("peer", event.peer);
  json->Field("detail", event.detail);
  json->Field("cause", event.cause);
  json->Close('}');
}

}  // namespace

std::string EncodeReport(const Report& report) {
  Json json;
  json.Open('{');
  json.Field("schema", kReportSchema);
  json.Field("version", R2CCL_VERSION);
  json.Field("wire_version", int{kWireVersion});
  EncodeProcess(report.process, &json);
  json.Field("started_ns", report.started_ns);
  json.Field("written_ns", report.written_ns);
  EncodeParams(report.params, &json);
  json.Key("nics").Open('[');
  for (const NicReport& nic : report.nics) EncodeNic(nic, &json);
  json.Close(']');
  json.Key("peers").Open('[');
  size_t shown = 0;
  for (const auto& [key, peer] : report.peers) {
    if (shown++ < kReportPeers) EncodePeer(key, peer, &json);
  }
  json.Close(']');
  json.Field("peers_total", report.peers.size());
  json.Field("replayed_chunks", report.replayed_chunks);
  json.Field("trial_chunks", report.trial_chunks);
  json.Field("duplicate_chunks", report.duplicate_chunks);
  json.Field("corrupt_chunks", report.corrupt_chunks);
  json.Key("strangers").Open('[');
  for (const auto& [kind, count] : report.strangers) {
    json.Open('{');
    json.Field("kind", kind);
    json.Field("count", count);
    json.Close('}');
  }
  json.Close(']');
  json.Field("own_probes", report.own_probes);
  json.Key("verdicts").Open('[');
  for (const VerdictReport& verdict : report.verdicts) EncodeVerdict(verdict, &json);
  json.Close(']');
  json.Field("events_total", report.events_total);
  json.Key("events").Open('[');
  for (const Event& event : report.events) EncodeEvent(event, &json);
  json.Close(']');
  json.Close('}');
  return json.text() + "\n";
}

}  // namespace r2ccl
