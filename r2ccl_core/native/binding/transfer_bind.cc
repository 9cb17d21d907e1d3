// The transfer engine for Python, bare: r2ccl_core.transfer is what programs use.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "binding/check.h"
#include "transfer/engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace r2ccl {
namespace {

using transfer::Direction;
using transfer::Engine;
using transfer::EngineId;
using transfer::Range;
using transfer::Transfer;

using Memory = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Ranges = nb::ndarray<const uint64_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<Engine> Open(const std::string& name, int mode,
                             const std::vector<std::pair<std::string, std::string>>& nics,
                             std::map<std::string, std::string> options) {
  options["R2CC_MODE"] = std::to_string(mode);
  Params params;
  Check(ReadParams(options, &params));
  std::vector<Nic> found(nics.size());
  for (size_t i = 0; i < nics.size(); ++i) Check(FindNic(nics[i].first, nics[i].second, &found[i]));
  std::shared_ptr<Engine> engine;
  Check(Engine::Create(name, params, std::move(found), &engine));
  return engine;
}

nb::bytes ToBytes(const EngineId& id) { return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size()); }

EngineId ToId(const nb::bytes& bytes) {
  EngineId id{};
  if (bytes.size() != id.size()) Check({Code::kInvalidArgument, "this names no transfer engine"});
  std::copy_n(reinterpret_cast<const uint8_t*>(bytes.c_str()), id.size(), id.begin());
  return id;
}

std::string ToText(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::shared_ptr<Transfer> Begin(Engine& engine, const nb::bytes& peer, bool reads, const Ranges& rows,
                                const std::optional<nb::bytes>& notification) {
  std::vector<Range> ranges(rows.shape(0));
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranges[i] = {rows(i, 0), rows(i, 1), rows(i, 2), rows(i, 3), rows(i, 4)};
  }
  EngineId id = ToId(peer);
  std::string text = notification ? ToText(*notification) : "";
  std::shared_ptr<Transfer> made;
  Status status;
  {
    nb::gil_scoped_release release;
    status =
        engine.Begin(id, reads ? Direction::kRead : Direction::kWrite, ranges, notification ? &text : nullptr, &made);
  }
  Check(status);
  return made;
}

// Waits for something to happen, for at most `timeout_s`; looks for Ctrl-C by way of the caller, which calls again.
void WaitForNews(Engine& engine, uint64_t seen, double timeout_s) {
  nb::gil_scoped_release release;
  engine.notifier().Wait(seen, std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
}

const char* StateName(const Transfer& transfer) {
  switch (transfer.state()) {
    case Transfer::kPending:
      return "pending";
    case Transfer::kDone:
      return "done";
    case Transfer::kCancelled:
      return "cancelled";
    case Transfer::kFailed:
      return "failed";
  }
  return "failed";
}

}  // namespace
}  // namespace r2ccl

void bind_transfer(nb::module_& module) {
  using namespace r2ccl;
  nb::class_<Transfer>(module, "Transfer").def_prop_ro("state", &StateName).def("check", [](const Transfer& transfer) {
    if (transfer.state() == Transfer::kFailed) Check(transfer.status());
  });
  nb::class_<Engine>(module, "TransferEngine")
      .def_prop_ro("address",
                   [](const Engine& engine) { return nb::bytes(engine.address().data(), engine.address().size()); })
      .def("register",
           [](Engine& engine, const Memory& memory) {
             uint64_t key = 0;
             Check(engine.Register(memory.data(), memory.nbytes(), &key));
             return key;
           })
      .def("deregister",
           [](Engine& engine, uint64_t key, double timeout_s) {
             Status status;
             {
               nb::gil_scoped_release release;
               status = engine.Deregister(key, timeout_s);
             }
             Check(status);
           })
      .def("connect",
           [](Engine& engine, const nb::bytes& address) {
             EngineId id{};
             Check(engine.Connect(ToText(address), &id));
             return ToBytes(id);
           })
      .def("ready",
           [](Engine& engine, const nb::bytes& peer) {
             bool ready = false;
             Check(engine.Ready(ToId(peer), &ready));
             return ready;
           })
      .def("disconnect", [](Engine& engine, const nb::bytes& peer) { engine.Disconnect(ToId(peer)); })
      .def("begin", &Begin, "peer"_a, "reads"_a, "ranges"_a, "notification"_a.none())
      .def("cancel", [](Engine& engine, Transfer& transfer) { engine.Cancel(transfer); })
      .def("notify", [](Engine& engine, const nb::bytes& peer,
                        const nb::bytes& text) { Check(engine.Notify(ToId(peer), ToText(text))); })
      .def("notifications",
           [](Engine& engine) {
             nb::list found;
             for (const auto& one : engine.TakeNotifications()) {
               found.append(nb::make_tuple(one.from, nb::bytes(one.text.data(), one.text.size())));
             }
             return found;
           })
      .def(
          "count", [](Engine& engine) { return engine.notifier().Count(); }, "Moves on when something happens.")
      .def("wait", &WaitForNews, "seen"_a, "timeout_s"_a)
      .def_prop_ro("net",
                   [](const std::shared_ptr<Engine>& engine) { return std::shared_ptr<Net>(engine, &engine->net()); })
      .def("close", &Engine::Close, nb::arg("drain_s"), nb::call_guard<nb::gil_scoped_release>());
  module.def("open_transfer_engine", &Open, "name"_a, "mode"_a, "nics"_a,
             "options"_a = std::map<std::string, std::string>());
}
