// The Python module r2ccl_core._native: the transport, the executor and the test pattern.
//
// Blocking calls release the interpreter lock and look for Ctrl-C a few times a second. Errors of the core
// become the exceptions of r2ccl_core.errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "binding/check.h"
#include "collective/executor.h"
#include "collective/pattern.h"
#include "transport/net.h"

namespace nb = nanobind;
using namespace nb::literals;

void bind_simulate(nanobind::module_&);  // simulate_bind.cc
void bind_transfer(nanobind::module_&);  // transfer_bind.cc

namespace r2ccl {
namespace {

using Buffer = nb::ndarray<nb::c_contig, nb::device::cpu>;
using StepArray = nb::ndarray<const int64_t, nb::shape<-1, 6>, nb::c_contig, nb::device::cpu>;

constexpr int kLongAsks = 20;  // of an executor, ten times a second

bool Interrupted() {
  nb::gil_scoped_acquire hold;
  return PyErr_CheckSignals() != 0;
}

// A signal handler has already raised its exception; otherwise the status becomes one.
void CheckRun(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  Check(status);
}

int64_t DeadlineNs(double timeout_s) { return NowNs() + static_cast<int64_t>(timeout_s * 1e9); }

// Calls `poll` (which says whether it is finished) until it is, fails, or the time is over.
template <typename Poll>
Status WaitUntil(Notifier& notifier, double timeout_s, const std::string& what, Poll poll) {
  int64_t deadline_ns = DeadlineNs(timeout_s);
  int64_t ask_ns = 0;
  while (true) {
    uint64_t seen = notifier.Count();
    bool finished = false;
    Status status = poll(&finished);
    if (!status.ok() || finished) return status;
    if (NowNs() > deadline_ns) return {Code::kTimeout, what + " took longer than " + std::to_string(timeout_s) + " s"};
    notifier.Wait(seen, std::chrono::milliseconds(20));
    if (int64_t now_ns = NowNs(); now_ns >= ask_ns) {
      if (Interrupted()) return {Code::kTimeout, "interrupted"};
      ask_ns = now_ns + 100 * kMillisecond;
    }
  }
}

// Python's hold on a native object keeps the Net alive as long as the object.
struct PyListener {
  std::shared_ptr<Net> net;
  std::shared_ptr<Listener> listener;
};

template <typename T>
struct PyComm {
  PyComm(std::shared_ptr<Net> owner, std::shared_ptr<T> made) : net(std::move(owner)), comm(std::move(made)) {}
  PyComm(const PyComm&) = delete;
  ~PyComm() { comm->Close(); }
  std::shared_ptr<Net> net;
  std::shared_ptr<T> comm;
};

// Keeps the buffer alive while the transport may touch it. Dropping an unfinished request closes its
// connection: the buffer may go away with it.
struct PyRequest {
  PyRequest(std::shared_ptr<Net> owner, std::shared_ptr<Comm> connection, Request* made, Buffer data)
      : net(std::move(owner)), comm(std::move(connection)), request(made), buffer(std::move(data)) {}
  PyRequest(PyRequest&& other) noexcept
      : net(std::move(other.net)),
        comm(std::move(other.comm)),
        request(std::exchange(other.request, nullptr)),
        buffer(std::move(other.buffer)),
        tag(other.tag) {}
  ~PyRequest() {
    if (request != nullptr) comm->Close();
  }

  std::shared_ptr<Net> net;
  std::shared_ptr<Comm> comm;
  Request* request;
  Buffer buffer;
  uint32_t tag = 0;  // of the message, once it was received

  nb::tuple Test() {
    bool done = request == nullptr;
    uint64_t size = 0;
    if (!done) {
      Status status = comm->Test(request, &done, &size, &tag);
      if (done || !status.ok()) request = nullptr;
      Check(status);
    }
    return nb::make_tuple(done, size);
  }

  uint64_t Wait(double timeout_s) {
    uint64_t size = 0;
    Status status;
    {
      nb::gil_scoped_release release;
      status = WaitUntil(*net->environment().notifier, timeout_s, "the transfer", [&](bool* finished) {
        Status tested = comm->Test(request, finished, &size, &tag);
        if (*finished || !tested.ok()) request = nullptr;
        return tested;
      });
    }
    CheckRun(status);
    return size;
  }
};

// Keeps the buffer, as it is, until it is given back.
struct PyMemory {
  PyMemory(std::shared_ptr<Net> owner, Buffer data) : net(std::move(owner)), buffer(std::move(data)) {
    net->AddMemory(static_cast<const char*>(buffer.data()), buffer.nbytes());
  }
  PyMemory(const PyMemory&) = delete;
  ~PyMemory() { Close(); }
  void Close() {
    if (auto held = std::exchange(net, nullptr))
      held->DropMemory(static_cast<const char*>(buffer.data()), buffer.nbytes());
  }

  std::shared_ptr<Net> net;
  Buffer buffer;
};

nb::dict Limits() {
  nb::dict limits;
#define R2CCL_LIMITS(field, name, value, low, high, meaning) \
  limits[name] = nb::make_tuple(static_cast<int64_t>(low), static_cast<int64_t>(high));
  R2CCL_PARAMS(R2CCL_LIMITS)
#undef R2CCL_LIMITS
#define R2CCL_LIMITS(field, name, value, meaning) limits[name] = nb::none();
  R2CCL_TEXT_PARAMS(R2CCL_LIMITS)
#undef R2CCL_LIMITS
#define R2CCL_LIMITS(name, reader, meaning) limits[name] = nb::none();
  R2CCL_OTHER_PARAMS(R2CCL_LIMITS)
#undef R2CCL_LIMITS
  return limits;
}

std::shared_ptr<Net> MakeNet(int mode, const std::vector<std::pair<std::string, std::string>>& nics,
                             std::map<std::string, std::string> options, const Net* beside) {
  options["R2CC_MODE"] = std::to_string(mode);
  Params params;
  Check(ReadParams(options, &params));
  std::vector<Nic> found(nics.size());
  for (size_t i = 0; i < nics.size(); ++i) Check(FindNic(nics[i].first, nics[i].second, &found[i]));
  std::shared_ptr<Net> net;
  Check(Net::Create(params, std::move(found), &net, beside));
  Check(net->report_status());
  return net;
}

PyComm<SendComm>* Connect(std::shared_ptr<Net> net, nb::bytes handle_bytes, double timeout_s) {
  Handle handle;
  Check(DecodeHandle(std::string(handle_bytes.c_str(), handle_bytes.size()), &handle));
  std::shared_ptr<SendComm> comm;
  Check(net->Connect(handle, &comm));
  auto made = std::make_unique<PyComm<SendComm>>(net, comm);
  Status status;
  {
    nb::gil_scoped_release release;
    status = WaitUntil(*net->environment().notifier, timeout_s, "connecting",
                       [&](bool* ready) { return comm->Ready(ready); });
  }
  CheckRun(status);
  return made.release();
}

PyComm<RecvComm>* Accept(PyListener& listener, double timeout_s) {
  std::shared_ptr<RecvComm> comm;
  Status status;
  {
    nb::gil_scoped_release release;
    status =
        WaitUntil(*listener.net->environment().notifier, timeout_s, "waiting for a connection", [&](bool* accepted) {
          comm = listener.listener->Accept();
          *accepted = comm != nullptr;
          return Status();
        });
  }
  CheckRun(status);
  return new PyComm<RecvComm>(listener.net, comm);  // Python takes ownership
}

std::string StateOf(const NicHealth& health) {
  if (health.down == 0) return "up";
  if (health.up > 0) return "partial";
  return health.held > 0 ? "held" : "down";
}

// Cheap enough to be asked a hundred times a second, as the following of losses does.
nb::list Nics(Net& net) {
  Environment& environment = net.environment();
  nb::list nics;
  auto health = net.Health();
  for (size_t i = 0; i < environment.nics.size(); ++i) {
    nb::dict nic;
    nic["name"] = environment.nics[i].name;
    nic["address"] = ToString(environment.nics[i].address);
    nic["tx_bytes"] = environment.counters[i].sent_bytes.load();
    nic["rx_bytes"] = environment.counters[i].received_bytes.load();
    nic["paths_up"] = health[i].up;
    nic["paths_down"] = health[i].down;
    nic["paths_held"] = health[i].held;
    nic["paths_cut_off"] = health[i].cut_off;
    nic["state"] = StateOf(health[i]);
    nics.append(nic);
  }
  return nics;
}

nb::dict Stats(Net& net) {
  Environment& environment = net.environment();
  nb::list events;
  for (const Event& event : environment.log.Snapshot()) {
    nb::dict entry;
    entry["t_ns"] = event.wall_ns;
    entry["kind"] = event.kind;
    entry["nic"] = event.nic;
    entry["peer"] = event.peer;
    entry["detail"] = event.detail;
    entry["cause"] = event.cause;
    events.append(entry);
  }
  nb::dict stats;
  stats["mode"] = environment.params.mode;
  stats["nics"] = Nics(net);
  stats["events"] = events;
  stats["replayed_chunks"] = environment.replayed_chunks.load();
  stats["duplicate_chunks"] = environment.duplicate_chunks.load();
  return stats;
}

// The executor with the Python-side owners of its connections.
struct PyExecutor {
  PyExecutor(std::shared_ptr<Net> owner, const std::vector<StepArray>& lanes, const std::vector<int64_t>& abreast,
             const nb::list& senders, const nb::list& receivers, std::vector<int64_t> destinations,
             std::vector<int64_t> sources, const std::vector<std::vector<double>>& shares)
      : net(std::move(owner)), owners(nb::make_tuple(senders, receivers)) {
    std::vector<std::vector<Step>> native_lanes;
    for (const StepArray& rows : lanes) {
      std::vector<Step> steps(rows.shape(0));
      for (size_t i = 0; i < steps.size(); ++i) {
        steps[i] = {rows(i, 0), rows(i, 1), rows(i, 2), rows(i, 3), rows(i, 4), rows(i, 5)};
      }
      native_lanes.push_back(std::move(steps));
    }
    std::vector<std::shared_ptr<SendComm>> send_comms;
    std::vector<std::shared_ptr<RecvComm>> recv_comms;
    for (nb::handle item : senders) send_comms.push_back(nb::cast<PyComm<SendComm>&>(item).comm);
    for (nb::handle item : receivers) recv_comms.push_back(nb::cast<PyComm<RecvComm>&>(item).comm);
    if (!abreast.empty() && abreast.size() != lanes.size()) {
      Check({Code::kInvalidArgument, "abreast names a group for every lane, or none"});
    }
    if (destinations.size() != send_comms.size() || sources.size() != recv_comms.size()) {
      Check({Code::kInvalidArgument, "every sender has a destination, and every receiver a source"});
    }
    if (!shares.empty() && shares.size() != send_comms.size()) {
      Check({Code::kInvalidArgument, "shares has those of every sender, or is empty"});
    }
    std::vector<NicShares> of_senders;
    for (const std::vector<double>& one : shares) {
      of_senders.push_back(one.empty() ? nullptr : std::make_shared<const std::vector<double>>(one));
    }
    executor = std::make_unique<Executor>(std::move(native_lanes), abreast, std::move(send_comms),
                                          std::move(recv_comms), std::move(destinations), std::move(sources),
                                          net->environment().notifier.get(), net, std::move(of_senders));
  }

  void Run(Buffer input, Buffer output, const std::string& dtype, const std::string& op, const std::string& collective,
           int64_t root, int64_t call, const nb::callable& waits_long) {
    auto kind = ParseCollective(collective);
    if (!kind) Check({Code::kInvalidArgument, "unknown collective '" + collective + "'"});
    auto type = ParseDataType(dtype);
    auto reduce_op = ParseReduceOp(op);
    if (!type) Check({Code::kInvalidArgument, "unknown data type '" + dtype + "'"});
    if (!reduce_op) Check({Code::kInvalidArgument, "unknown reduction '" + op + "'; use sum, min, max, prod or avg"});
    if (input.nbytes() != output.nbytes() || input.nbytes() % SizeOf(*type) != 0) {
      Check({Code::kInvalidArgument, "input and output differ in size"});
    }
    auto elements = static_cast<int64_t>(input.nbytes() / SizeOf(*type));
    Check(executor->Validate(elements));
    Status status;
    {
      nb::gil_scoped_release release;
      int asked = 0;
      auto interrupted = [&] {
        nb::gil_scoped_acquire hold;
        try {
          if (++asked == kLongAsks) waits_long();
        } catch (nb::python_error& error) {
          error.restore();  // the run ends, as after a signal
          return true;
        }
        return PyErr_CheckSignals() != 0;
      };
      status =
          executor->Run(input.data(), output.data(), {*kind, *type, *reduce_op, root, elements, call}, interrupted);
    }
    CheckRun(status);
  }

  std::shared_ptr<Net> net;
  nb::object owners;
  std::unique_ptr<Executor> executor;
};

Pattern MakePattern(int64_t ranks, int64_t iteration, int64_t seed, const std::string& op) {
  auto reduce_op = ParseReduceOp(op);
  if (!reduce_op) Check({Code::kInvalidArgument, "unknown reduction '" + op + "'; use sum, min, max, prod or avg"});
  if (ranks < 1) Check({Code::kInvalidArgument, "a pattern needs at least one rank"});
  return {ranks, iteration, seed, *reduce_op};
}

DataType TypeOrThrow(const std::string& dtype, const Buffer& data) {
  auto type = ParseDataType(dtype);
  if (!type) Check({Code::kInvalidArgument, "unknown data type '" + dtype + "'"});
  if (data.nbytes() % SizeOf(*type) != 0) Check({Code::kInvalidArgument, "buffer is no whole number of elements"});
  return *type;
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The C++ core of r2ccl: fault-tolerant transport, schedule executor, test pattern.";

  nb::class_<Net>(module, "Net", "The transport of one process: its NICs, threads and listening socket.")
      .def("__init__",
           [](nb::handle, nb::args, nb::kwargs) { Check({Code::kInvalidArgument, "use _native.open_net()"}); })
      .def("listen",
           [](std::shared_ptr<Net> net) {
             std::shared_ptr<Listener> listener;
             Check(net->Listen(&listener));
             return PyListener{net, listener};
           })
      .def("connect", &Connect, "handle"_a, "timeout_s"_a = 10.0)
      .def(
          "register", [](std::shared_ptr<Net> net, Buffer data) { return new PyMemory(std::move(net), data); },
          "data"_a, "The buffer's memory, from and into which large messages may go without a copy until it is closed.")
      .def("stats", &Stats)
      .def("nics", &Nics)
      .def_prop_ro(
          "give_up_ms", [](Net& net) { return net.environment().params.give_up_ms; },
          "R2CC_FAILOVER_GIVE_UP_MS, as it holds here.")
      .def("close", &Net::Shutdown, nb::call_guard<nb::gil_scoped_release>());
  module.def("open_net", &MakeNet, "mode"_a, "nics"_a, "options"_a = std::map<std::string, std::string>(),
             "beside"_a = nb::none(),
             "A transport over these NICs. An executor that waits in `beside` is woken by what happens here, too.");

  module.def(
      "keep_forever",
      [](nb::handle object) {
        object.inc_ref();
        nb::set_leak_warnings(false);
      },
      "object"_a, "Never destroys the object: a forked child has none of the threads that its end would wait for.");
  module.def("limits", &Limits,
             "Smallest and largest value of each environment variable; None for a text or what others check.");
  module.def(
      "discover_nics",
      [](const std::string& filter) {
        std::vector<Nic> nics;
        std::vector<LeftOut> management;
        Check(DiscoverNics(filter, &nics, &management));
        std::vector<std::pair<std::string, std::string>> found;
        for (const Nic& nic : nics) found.emplace_back(nic.name, ToString(nic.address));
        std::vector<std::pair<std::string, std::string>> left_out;
        for (const LeftOut& nic : management) left_out.emplace_back(nic.name, nic.why);
        return std::make_pair(found, left_out);
      },
      "filter"_a,
      "(name, IPv4 address) of the NICs that a filter in NCCL_SOCKET_IFNAME's form selects, and (name, reason) of "
      "those that were left out because they belong to the management network.");

  nb::class_<PyListener>(module, "Listener")
      .def_prop_ro("handle",
                   [](PyListener& listener) {
                     std::string bytes = EncodeHandle(listener.listener->handle());
                     return nb::bytes(bytes.data(), bytes.size());
                   })
      .def("accept", &Accept, "timeout_s"_a = 10.0)
      .def("close", [](PyListener& listener) { listener.net->CloseListener(listener.listener); });

  nb::class_<PyMemory>(module, "Memory").def("close", &PyMemory::Close);

  nb::class_<PyRequest>(module, "Request")
      .def("test", &PyRequest::Test, "(done, size in bytes)")
      .def("wait", &PyRequest::Wait, "timeout_s"_a = 60.0, "Size in bytes of the message.")
      .def_prop_ro(
          "tag", [](PyRequest& self) { return self.tag; }, "What the sending end gave, of a message received.");

  nb::class_<PyComm<SendComm>>(module, "SendComm")
      .def(
          "isend",
          [](PyComm<SendComm>& self, Buffer data, uint32_t tag) {
            if (tag > kMostTag) Check({Code::kInvalidArgument, "tag: at most " + std::to_string(kMostTag)});
            Request* request = nullptr;
            Check(self.comm->Isend(data.data(), data.nbytes(), &request, false, tag));
            return PyRequest{self.net, self.comm, request, data};
          },
          "data"_a, "tag"_a = 0, "`tag` is the receiving end's to read.")
      .def("close", [](PyComm<SendComm>& self) { self.comm->Close(); });

  nb::class_<PyComm<RecvComm>>(module, "RecvComm")
      .def("irecv",
           [](PyComm<RecvComm>& self, Buffer data) {
             Request* request = nullptr;
             Check(self.comm->Irecv(data.data(), data.nbytes(), &request));
             return PyRequest{self.net, self.comm, request, data};
           })
      .def("close", [](PyComm<RecvComm>& self) { self.comm->Close(); });

  nb::class_<PyExecutor>(module, "Executor", "Runs one rank's program of a schedule.")
      .def(nb::init<std::shared_ptr<Net>, const std::vector<StepArray>&, const std::vector<int64_t>&, const nb::list&,
                    const nb::list&, std::vector<int64_t>, std::vector<int64_t>,
                    const std::vector<std::vector<double>>&>(),
           "net"_a, "lanes"_a, "abreast"_a, "senders"_a, "receivers"_a, "destinations"_a, "sources"_a,
           "shares"_a = std::vector<std::vector<double>>(),
           "`shares` has, for every sender, the part of its bytes that each NIC is to carry (empty: as the NICs' loads "
           "decide).")
      .def("run", &PyExecutor::Run, "input"_a, "output"_a, "dtype"_a, "op"_a, "collective"_a, "root"_a, "call"_a,
           "waits_long"_a, "`waits_long` is called once when the run has lasted for two seconds.");

  module.def(
      "pattern_fill",
      [](Buffer data, const std::string& dtype, int64_t rank, int64_t ranks, int64_t iteration, int64_t seed,
         const std::string& op) {
        DataType type = TypeOrThrow(dtype, data);
        Pattern pattern = MakePattern(ranks, iteration, seed, op);
        nb::gil_scoped_release release;
        FillPattern(pattern, rank, type, data.data(), data.nbytes() / SizeOf(type));
      },
      "data"_a, "dtype"_a, "rank"_a, "ranks"_a, "iteration"_a, "seed"_a, "op"_a);
  module.def(
      "pattern_check",
      [](Buffer data, const std::string& dtype, int64_t ranks, int64_t iteration, int64_t seed, const std::string& op) {
        DataType type = TypeOrThrow(dtype, data);
        Pattern pattern = MakePattern(ranks, iteration, seed, op);
        nb::gil_scoped_release release;
        return CheckPattern(pattern, type, data.data(), data.nbytes() / SizeOf(type));
      },
      "data"_a, "dtype"_a, "ranks"_a, "iteration"_a, "seed"_a, "op"_a);
  bind_simulate(module);
  bind_transfer(module);
}

}  // namespace r2ccl
