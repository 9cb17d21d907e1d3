// Localize: where is the fault behind the loss of a path? Pure: evidence in, verdict out.
//
// A path has three parts: my NIC, the peer's NIC, and what lies between. A third host on the same rail distinguishes
// them: the NIC that it reaches (or that reaches it) works. With two hosts there is no third; then only a link event,
// which the kernel of its own host sees, identifies a NIC.
#ifndef R2CCL_FAILOVER_LOCALIZE_H_
#define R2CCL_FAILOVER_LOCALIZE_H_

#include <cstdint>
#include <string>

namespace r2ccl {

// As seen from this end; the wire uses these numbers.
enum class Verdict : uint8_t { kUnknown, kLocalNic, kRemoteNic, kLink, kWorks };

constexpr const char* ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kUnknown:
      return "unknown";
    case Verdict::kLocalNic:
      return "local_nic";
    case Verdict::kRemoteNic:
      return "remote_nic";
    case Verdict::kLink:
      return "link";
    case Verdict::kWorks:
      return "works";
  }
  return "?";
}

// The same verdict from the other end's point of view.
constexpr Verdict Mirrored(Verdict verdict) {
  if (verdict == Verdict::kLocalNic) return Verdict::kRemoteNic;
  if (verdict == Verdict::kRemoteNic) return Verdict::kLocalNic;
  return verdict;
}

struct Evidence {
  bool own_link_down = false;   // according to the kernel here
  bool peer_link_down = false;  // according to the peer's kernel
  bool direct = false;          // the peer's NIC answers mine
  // Third hosts that were probed from a NIC or probed it, and those of them with an answer.
  int own_tried = 0;
  int own_reached = 0;
  int peer_tried = 0;
  int peer_reached = 0;
};

constexpr Verdict Judge(const Evidence& e) {
  if (e.own_link_down) return Verdict::kLocalNic;
  if (e.peer_link_down) return Verdict::kRemoteNic;
  if (e.direct) return Verdict::kWorks;  // only a stream ended: a process crashed, or a connection was reset
  bool own_works = e.own_reached > 0;
  bool peer_works = e.peer_reached > 0;
  if (own_works && peer_works) return Verdict::kLink;
  if (own_works && e.peer_tried > 0) return Verdict::kRemoteNic;
  if (peer_works && e.own_tried > 0) return Verdict::kLocalNic;
  return Verdict::kUnknown;
}

// Why, in one line.
inline std::string Explain(const Evidence& e) {
  if (e.own_link_down) return "the link of this NIC is down";
  if (e.peer_link_down) return "the link of the peer's NIC is down, says the peer";
  if (e.direct) return "the peer's NIC answers: the stream was lost, not the way";
  if (e.own_tried + e.peer_tried == 0) return "no third host was there to ask";
  auto share = [](int reached, int tried) { return std::to_string(reached) + " of " + std::to_string(tried); };
  return "third hosts reached: with this NIC " + share(e.own_reached, e.own_tried) + ", with the peer's " +
         share(e.peer_reached, e.peer_tried);
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_LOCALIZE_H_
