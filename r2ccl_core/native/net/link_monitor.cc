// rtnetlink subscription for changes of links and addresses.
#include "net/link_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr int64_t kAskPauseNs = 100 * kMillisecond;

// The attribute of `type`, nullptr where there is none.
const rtattr* Find(const rtattr* attribute, size_t bytes, uint16_t type) {
  auto left = static_cast<unsigned int>(bytes);
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type == type) return attribute;
  }
  return nullptr;
}

// What follows a message's fixed part.
template <typename Body>
const rtattr* Attributes(const nlmsghdr& message, size_t* bytes) {
  size_t fixed = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(Body)));
  *bytes = message.nlmsg_len > fixed ? message.nlmsg_len - fixed : 0;
  return reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(&message) + fixed);
}

}  // namespace

Status LinkMonitor::Open() {
  Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.valid()) return {Code::kSystem, std::string("netlink socket: ") + std::strerror(errno)};
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return {Code::kSystem, std::string("netlink bind: ") + std::strerror(errno)};
  }
  fd_ = std::move(fd);
  table_.BeginSync();
  Ask(Asked::kLinks);  // links that are down already are reported like those that go down later
  return {};
}

// One question at a time: the kernel refuses a second one.
void LinkMonitor::Ask(Asked what) {
  struct {
    nlmsghdr header;
    ifinfomsg body;  // what asks for addresses is shorter and as empty
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = what == Asked::kLinks ? RTM_GETLINK : RTM_GETADDR;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.header.nlmsg_seq = ++number_;
  if (what == Asked::kAddresses) {
    auto* body = reinterpret_cast<ifaddrmsg*>(&request.body);
    body->ifa_family = AF_INET;
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof *body);
  }
  asked_ = what;
  asked_ns_ = NowNs();
  if (send(fd_.get(), &request, request.header.nlmsg_len, 0) < 0) EndAnswer(false);
}

void LinkMonitor::EndAnswer(bool complete) {
  Asked asked = std::exchange(asked_, Asked::kNothing);
  bool whole = complete && !std::exchange(interrupted_, false);
  if (!whole) {
    distrusted_ = true;
  } else if (asked == Asked::kLinks) {
    Ask(Asked::kAddresses);
  } else {
    table_.EndSync();
  }
}

void LinkMonitor::Tick(int64_t now_ns) {
  if (!distrusted_ || asked_ != Asked::kNothing || now_ns - asked_ns_ < kAskPauseNs) return;
  distrusted_ = false;
  table_.BeginSync();
  Ask(Asked::kLinks);
}

void LinkMonitor::TakeLink(const nlmsghdr& message) {
  const auto& link = *static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  if (link.ifi_family != AF_UNSPEC) return;  // a bridge's word about one of its ports
  if (message.nlmsg_type == RTM_DELLINK) return table_.DropLink(link.ifi_index);
  size_t bytes = 0;
  const rtattr* attributes = Attributes<ifinfomsg>(message, &bytes);
  const rtattr* name = Find(attributes, bytes, IFLA_IFNAME);
  if (name == nullptr) return;
  const auto* text = static_cast<const char*>(RTA_DATA(name));
  bool running = (link.ifi_flags & IFF_UP) != 0 && (link.ifi_flags & IFF_RUNNING) != 0;
  table_.SetLink(link.ifi_index, {text, strnlen(text, RTA_PAYLOAD(name))}, running,
                 (link.ifi_flags & IFF_LOOPBACK) != 0);
}

void LinkMonitor::TakeAddress(const nlmsghdr& message) {
  const auto& body = *static_cast<const ifaddrmsg*>(NLMSG_DATA(&message));
  if (body.ifa_family != AF_INET) return;
  size_t bytes = 0;
  const rtattr* attributes = Attributes<ifaddrmsg>(message, &bytes);
  const rtattr* found = Find(attributes, bytes, IFA_LOCAL);  // the other address of a point-to-point link is the peer's
  if (found == nullptr) found = Find(attributes, bytes, IFA_ADDRESS);
  in_addr address{};
  if (found == nullptr || RTA_PAYLOAD(found) < sizeof address) return;
  std::memcpy(&address, RTA_DATA(found), sizeof address);
  auto ifindex = static_cast<int>(body.ifa_index);
  message.nlmsg_type == RTM_NEWADDR ? table_.AddAddress(ifindex, address) : table_.DropAddress(ifindex, address);
}

void LinkMonitor::Take(const nlmsghdr& message) {
  bool answers = message.nlmsg_seq == number_ && asked_ != Asked::kNothing;
  if (answers && (message.nlmsg_flags & NLM_F_DUMP_INTR) != 0) interrupted_ = true;
  switch (message.nlmsg_type) {
    case NLMSG_DONE:
    case NLMSG_ERROR:
      if (answers) EndAnswer(message.nlmsg_type == NLMSG_DONE);
      return;
    case RTM_NEWLINK:
    case RTM_DELLINK:
      if (message.nlmsg_len >= NLMSG_LENGTH(sizeof(ifinfomsg))) TakeLink(message);
      return;
    case RTM_NEWADDR:
    case RTM_DELADDR:
      if (message.nlmsg_len >= NLMSG_LENGTH(sizeof(ifaddrmsg))) TakeAddress(message);
      return;
    default:
      return;
  }
}

std::vector<NicChange> LinkMonitor::Drain() {
  alignas(nlmsghdr) char buffer[32768];
  while (true) {
    ssize_t received = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (received < 0 && errno == ENOBUFS) Distrust();
    if (received < 0 && (errno == ENOBUFS || errno == EINTR)) continue;
    if (received <= 0) break;
    auto length = static_cast<unsigned int>(received);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, length);
         message = NLMSG_NEXT(message, length)) {
      Take(*message);
    }
  }
  Tick(NowNs());
  return table_.TakeChanges();
}

}  // namespace r2ccl
