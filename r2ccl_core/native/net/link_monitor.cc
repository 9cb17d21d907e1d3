// rtnetlink subscription for link changes.
#include "net/link_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace r2ccl {

Status LinkMonitor::Open() {
  Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.valid()) return {Code::kSystem, std::string("netlink socket: ") + std::strerror(errno)};
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return {Code::kSystem, std::string("netlink bind: ") + std::strerror(errno)};
  }
  fd_ = std::move(fd);
  RequestAll();  // links that are down already are reported like those that go down later
  return {};
}

void LinkMonitor::RequestAll() {
  struct {
    nlmsghdr header;
    ifinfomsg body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  send(fd_.get(), &request, sizeof request, 0);
}

void LinkMonitor::Drain(const OnLink& on_link) {
  alignas(nlmsghdr) char buffer[32768];
  while (true) {
    ssize_t received = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (received < 0 && errno == ENOBUFS) {
      RequestAll();
      continue;
    }
    if (received <= 0) return;
    auto length = static_cast<unsigned int>(received);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, length);
         message = NLMSG_NEXT(message, length)) {
      if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) continue;
      auto* link = static_cast<ifinfomsg*>(NLMSG_DATA(message));
      bool running =
          message->nlmsg_type == RTM_NEWLINK && (link->ifi_flags & IFF_UP) != 0 && (link->ifi_flags & IFF_RUNNING) != 0;
      on_link(link->ifi_index, running);
    }
  }
}

}  // namespace r2ccl
