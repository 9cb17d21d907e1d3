"""Mistakes planted in the transport that ships, one at a time, and whether the explorer finds each.

python tests/native/mutants.py [--only NAME] [--seconds 60] [--jobs N] [--write] [--table FILE]

Each mutant is one change of one file. What includes that file is compiled again and linked with the rest, then the
explorer looks at fresh seeds on one core until a rule is broken. A mutant that seeds do not meet within a minute, such
as one whose gap lasts for microseconds, names the unit test that is run instead. Needs cmake (with make or ninja), g++
and GoogleTest, and no network; as many mutants at a time as there are jobs, all processors by default: about six
minutes on 16 cores. With ``--write`` the rows go to r2ccl_core/native/wire/simulated/MUTANTS.md, with ``--table`` to
another file, each as soon as it is known; rows of mutants that were not tried stay as they are. Exit status 1: a mutant
survived, or one does not apply to the code any more.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "r2ccl_core" / "native"
TABLE = NATIVE / "wire" / "simulated" / "MUTANTS.md"


IDENTITY = """\
  if (sum != Crc32c(&header, sizeof header)) return Broken("a message was changed on its way, or half of it came");
  if (header.number != received_) {
    return Broken("message " + std::to_string(header.number) + " came where " + std::to_string(received_) + " was due");
  }
  if (header.bytes != done.bytes - sizeof header - kTailBytes) return Broken("a message of another length");
  if (header.returned < peer_returned_ || header.returned > sent_) return Broken("impossible slots are given back");
"""
"""By which a message over RDMA is known for the one that is due."""


@dataclass(frozen=True)
class Mutant:
    """``old`` stands once in ``file`` and becomes ``new``; ``what`` says which promise that breaks.

    ``test``: the unit test that is to find it; else seeds are.
    """

    name: str
    what: str
    file: str
    old: str
    new: str
    test: str = ""


MUTANTS = [
    Mutant(
        "shares_never_due",
        "a path that has had its share never gets more",
        "failover/split.h",
        "turns_[i] <= most",
        "turns_[i] < kLeadBytes / 64",
    ),
    Mutant(
        "acks_of_any_epoch",
        "counts of earlier streams are taken for those of the present one",
        "failover/protocol.h",
        "return IsOpen(state) && path_epoch == acked_epoch;",
        "return IsOpen(state) && path_epoch + 9 > acked_epoch;",
    ),
    Mutant(
        "copy_is_written_at_once",
        "a copy is written while another path is in the middle of the chunk",
        "failover/protocol.h",
        "return state == ChunkState::kArriving ? Placement::kAside : Placement::kWrite;",
        "return Placement::kWrite;",
    ),
    Mutant(
        "writer_is_left_alone",
        "a path that is in the middle of a chunk goes on after a copy was put in its place",
        "failover/recv_comm.cc",
        "  SendNowhere(frame);\n",
        "",
    ),
    Mutant(
        "copy_is_thrown_away",
        "a copy that was read aside is not put in its place, and counts",
        "failover/recv_comm.cc",
        "copy.get(), frame.body_bytes);\n",
        "copy.get(), 0);\n",
    ),
    Mutant(
        "both_copies_are_forgotten",
        "a chunk that went over two paths is not sent again when both are lost",
        "failover/send_comm_late.cc",
        "  return left == 0 && !acknowledged;\n",
        "  return left < 0 && !acknowledged;\n",
    ),
    Mutant(
        "frame_is_not_kept",
        "a frame that is being written goes on reading a buffer whose send is done",
        "failover/send_comm_late.cc",
        "if (outgoing(path).in_flight.back().copies == chunk.copies) path.stream->KeepBody();",
        "(void)path;",
    ),
    Mutant(
        "writes_done_chunks",
        "a chunk that comes again is written again",
        "failover/protocol.h",
        "if (state == ChunkState::kDone) return Placement::kDiscard;",
        "if (state == ChunkState::kDone) return Placement::kWrite;",
    ),
    Mutant(
        "in_flight_is_forgotten",
        "what was in flight on a lost path is not sent again",
        "failover/send_comm.cc",
        "    queues_[chunk.queue].push_front(chunk);\n    ++waiting_chunks_;\n    waiting_bytes_ += chunk.length;\n",
        "",
    ),
    Mutant(
        "done_when_sent",
        "a send completes when its bytes left",
        "failover/send_comm.cc",
        "  path.stream->Send(frame, owner.data + chunk.offset);\n",
        "  path.stream->Send(frame, owner.data + chunk.offset);\n"
        "  Message& sent = message(chunk.message);\n"
        "  if (sent.request != nullptr && chunk.offset + chunk.length >= sent.size) {\n"
        "    Finish(sent.request, Request::kDone);\n    sent.request = nullptr;\n  }\n",
    ),
    Mutant(
        "counts_at_the_beginning",
        "a chunk is acknowledged when its first byte came",
        "failover/recv_comm.cc",
        "  in.aside.reset();\n  if ((frame.flags & kTrialFlag) == 0)",
        "  in.aside.reset();\n  ++in.chunks;\n  if ((frame.flags & kTrialFlag) == 0)",
    ),
    Mutant(
        "half_a_chunk_counts",
        "a path lost in the middle of a chunk leaves it as arrived",
        "failover/recv_comm.cc",
        "chunks[path.frame.c / path.frame.d] = ChunkState::kMissing;",
        "chunks[path.frame.c / path.frame.d] = ChunkState::kDone;\n      ++messages_[path.frame.a - first_].done;",
    ),
    Mutant(
        "count_survives_the_stream",
        "the receiving end goes on counting from the stream before",
        "failover/recv_comm.cc",
        "  incoming_[static_cast<size_t>(index)] = {};\n",
        "",
    ),
    Mutant(
        "sender_count_survives",
        "the sending end goes on counting from the stream before",
        "failover/send_comm.cc",
        "      outgoing(path).acknowledged_chunks = 0;\n",
        "",
    ),
    Mutant(
        "sends_ahead_of_receives",
        "messages go before their receive is posted, however many",
        "failover/send_comm.cc",
        "bool may_go = next.number < posted_ ||",
        "bool may_go = next.number < posted_ + 40 ||",
    ),
    Mutant(
        "one_chunk_completes",
        "a message completes with its first chunk",
        "failover/recv_comm.h",
        "return started && done == chunks.size();",
        "return started && done >= 1;",
    ),
    Mutant(
        "stash_is_not_copied",
        "an early message is not copied into its buffer",
        "failover/recv_comm.cc",
        "  if (message.stash && message.size > 0) std::memcpy(message.data, message.stash.get(), message.size);\n",
        "",
    ),
    Mutant(
        "lane_survives_the_end",
        "requests of a connection that failed are never told",
        "failover/send_comm.cc",
        "    if (unfinished.request != nullptr) Finish(unfinished.request, Request::kFailed);\n",
        "",
    ),
    Mutant(
        "receives_survive_the_end",
        "receives of a connection that failed are never told",
        "failover/recv_comm.cc",
        "    if (message.request != nullptr) Complete(message.request, Request::kFailed);\n",
        "",
    ),
    Mutant(
        "never_dials_again",
        "a lost path is not opened again",
        "failover/send_comm.cc",
        "if (path.state == PathState::kDown && !path.link_down && now_ns >= path.dial_ns)",
        "if (path.state == PathState::kDown && path.epoch == 0 && now_ns >= path.dial_ns)",
    ),
    Mutant(
        "link_stays_down",
        "a link that came back is taken for down",
        "failover/comm.cc",
        "    path.link_down = !change.running;\n",
        "    path.link_down = path.link_down || !change.running;\n",
    ),
    Mutant(
        "silence_is_never_death",
        "a silent path is never given up",
        "failover/comm_watch.cc",
        "  if (IsDead(params, progress, limit_ns, lossy, silence)) {",
        "  if (IsDead(params, progress, limit_ns, lossy, silence) && now_ns < 0) {",
    ),
    Mutant(
        "impatient",
        "a path is given up within milliseconds",
        "failover/comm_watch.cc",
        "  if (IsDead(params, progress, limit_ns, lossy, silence)) {",
        "  if (silence.in_order_ns > 2 * kMillisecond) {",
    ),
    Mutant(
        "never_gives_up",
        "a connection without any path waits for ever",
        "failover/comm_watch.cc",
        "  if (no_path_since_ns_ == 0 || peer_closed_) return;\n",
        "  if (no_path_since_ns_ >= 0 || peer_closed_) return;\n",
    ),
    Mutant(
        "duplicates_do_not_count",
        "a chunk that came twice is not acknowledged the second time",
        "failover/recv_comm.cc",
        "      ++in.chunks;\n      CountLazy(frame);",
        "      in.chunks += in.arriving ? 1 : 0;\n      CountLazy(frame);",
    ),
    Mutant(
        "counts_add_up",
        "an acknowledgement's count is taken for what is new",
        "failover/send_comm.cc",
        "uint64_t count = chunks - out.acknowledged_chunks;",
        "uint64_t count = chunks;",
    ),
    Mutant(
        "one_too_many",
        "one chunk more is taken for acknowledged when a peer hangs up",
        "failover/send_comm.cc",
        "messages_.front().number < messages)",
        "messages_.front().number <= messages)",
    ),
    Mutant(
        "close_forgets_copies",
        "closing does not wait for what was copied",
        "failover/comm.cc",
        "if (failure_.ok() && OwesOnlyCopies()) {",
        "if (failure_.ok() && OwesOnlyCopies() && environment_->params.mode < 0) {",
    ),
    Mutant(
        "sums_are_not_looked_at",
        "a chunk that was changed on its way counts",
        "failover/recv_comm.cc",
        "        if (!status.ok()) {\n          ++environment_->corrupt_chunks;\n          return status;\n        }\n",
        "        (void)status;\n",
    ),
    Mutant(
        "fail_stop_goes_on",
        "in fail-stop mode a lost NIC fails nobody",
        "failover/comm.cc",
        "  if (params.mode == 0) {\n    Fail(",
        "  if (params.mode == 0 && AnyUp() == nullptr) {\n    Fail(",
    ),
    Mutant(
        "held_for_ever",
        "a path that flapped never carries data again",
        "failover/send_comm.cc",
        "  ReleaseHeld(now_ns);\n  EndDetours(now_ns);",
        "  EndDetours(now_ns);",
    ),
    Mutant(
        "acknowledgement_is_lost",
        "what could not be said at once is never said",
        "failover/recv_comm.cc",
        "  ack_due_ = true;\n  bool usable",
        "  ack_due_ = false;\n  bool usable",
    ),
    Mutant(
        "size_of_the_buffer",
        "a receive tells its buffer's size, not the message's",
        "failover/recv_comm.cc",
        "  message.request->size = message.size;",
        "  message.request->size = message.capacity;",
    ),
    Mutant(
        "wrong_place",
        "a chunk goes to the place of the one before",
        "failover/recv_comm.cc",
        "message->data) + frame.c;",
        "message->data) + (frame.c >= 2 * frame.d ? frame.c - frame.d : frame.c);",
    ),
    Mutant(
        "copy_is_not_kept",
        "a send that was reported done still reads the program's buffer",
        "failover/send_comm.cc",
        "  message.data = message.copy.get();\n",
        "",
    ),
    Mutant(
        "dropped_body_lands",
        "the rest of a chunk that another path brought still goes to its place",
        "wire/frame_reader.h",
        "if (in_body_ && frame_.type == FrameType::kData) body_ = nullptr;",
        "(void)in_body_;",
    ),
    Mutant(
        "header_in_pieces",
        "of a header that comes in two pieces the first is forgotten",
        "wire/frame_reader.cc",
        "  header_bytes_ += bytes - body;\n",
        "  header_bytes_ = bytes - body;\n",
    ),
    Mutant(
        "queue_is_not_fenced",
        "an RDMA queue is given up without a fence",
        "wire/verbs/verbs_stream.cc",
        "  if (pipe_ != nullptr) (void)pipe_->queue().Fence();\n",
        "",
    ),
    Mutant(
        "fence_comes_after",
        "an RDMA queue's memory is given back before the fence",
        "wire/verbs/verbs_stream.cc",
        "  if (pipe_ != nullptr) (void)pipe_->queue().Fence();\n  pipe_.reset();\n",
        "  pipe_.reset();\n  if (pipe_ != nullptr) (void)pipe_->queue().Fence();\n",
    ),
    Mutant(
        "queue_is_revived",
        "a queue pair begins with the packet number that the one before it began with",
        "wire/verbs/verbs_stream.cc",
        "shared_->random() & kMostPsn",
        "0",
    ),
    Mutant(
        "completion_is_counted",
        "a message by RDMA is the next because its completion is",
        "wire/verbs/rc_pipe.cc",
        IDENTITY,
        "  header.returned = std::max(header.returned, peer_returned_);\n",
    ),
    Mutant(
        "number_modulo_the_ring",
        "the number of a message by RDMA is compared modulo the slots of the ring",
        "wire/verbs/rc_pipe.cc",
        IDENTITY,
        "  uint64_t slots = shape_.receive_slots;\n"
        '  if (header.number % slots != received_ % slots) return Broken("another message");\n'
        "  header.returned = std::max(header.returned, peer_returned_);\n",
    ),
    Mutant(
        "kind_has_no_sum",
        "a message by RDMA that was changed on its way passes for one of another kind",
        "wire/verbs/rc_pipe.cc",
        "if (sum != Crc32c(&header, sizeof header)) return",
        "if (sum != Crc32c(&header, sizeof header) && header.kind == RcKind::kBytes) return",
        test="RcPipe.AMessageOfWhichOneBitWasChangedIsRefused",
    ),
    Mutant(
        "counts_are_not_compared",
        "a message by RDMA whose completion the device lost is not missed by what both ends count",
        "wire/verbs/verbs_stream.cc",
        "pipe_->received() < due",
        "false",
        test="VerbsStream.WordsThatWereLostWithTheSlotsThatTheyGaveBackAreMissedByCounting",
    ),
    Mutant(
        "farewells_wait_for_ever",
        "a stream by RDMA whose farewell's completion the device lost keeps its connection for good",
        "wire/verbs/verbs_stream.cc",
        "if (is_late(one)) late.push_back",
        "if (false) late.push_back",
        test="VerbsStream.AFarewellWhoseCompletionTheDeviceLostIsNotWaitedForForEver",
    ),
    Mutant(
        "lost_end_of_tests_is_not_asked_for",
        "a path whose peer's last word was that tests are over, and was lost by the device, stays out of use",
        "failover/comm_watch.cc",
        "(path.tested || HasPending())",
        "HasPending()",
        test="Explore.SeedsThatOnceBrokeARuleBreakNoneAnyMore",
    ),
    Mutant(
        "tests_have_no_time_of_their_own",
        "the packets of a test have less time than they take on a slow NIC, so that a healed pair fails all",
        "failover/comm_way.cc",
        "std::max(slow_ns / 4, DrainNs(bytes, best, MostCarried()))",
        "slow_ns / 4",
        test="Explore.SeedsThatOnceBrokeARuleBreakNoneAnyMore",
    ),
    Mutant(
        "grant_is_not_fenced",
        "a place that the peer may still write to is taken back without a fence",
        "wire/verbs/verbs_write.cc",
        "  (void)pipe_->queue().Fence();\n  Break(reason);\n",
        "",
    ),
    Mutant(
        "hangs_up_with_a_grant",
        "a connection that ends says farewell over a queue pair by which the peer may still write",
        "wire/verbs/verbs_stream.cc",
        "  if (!by_rdma_ || grant_is_out_) return HangUpByTcp(farewell);",
        "  if (!by_rdma_) return HangUpByTcp(farewell);",
    ),
    Mutant(
        "fence_after_the_next_grant",
        "a place that the peer may still write to is fenced only with its path, after another path has used it",
        "wire/verbs/verbs_read.cc",
        '  if (grant_is_out_) FenceNow("RDMA: another path brought a chunk that the peer might still write");\n',
        "",
        test="VerbsWrite.ALateWriteDoesNotLandOnceItsPlaceWasTakenBack",
    ),
    Mutant(
        "writes_are_not_awaited",
        "a chunk has landed as soon as its writes have begun, and its buffer is read no more",
        "wire/verbs/verbs_write.cc",
        "  if (pipe_->is_writing()) return false;\n",
        "",
    ),
    Mutant(
        "grant_has_no_sum",
        "a place that is granted is not protected by a sum",
        "wire/verbs/verbs_write.cc",
        "  return sum == SumOf(words, sizeof *words);\n",
        "  return true;\n",
        test="VerbsWrite.NothingIsWrittenToAPlaceThatWasChangedOnItsWay",
    ),
    Mutant(
        "switch_is_not_awaited",
        "what comes by RDMA is given before TCP has come to its end",
        "wire/verbs/verbs_read.cc",
        "      if (!from_rdma_) return;  // TCP has not come to its end yet\n",
        "",
    ),
    Mutant(
        "frames_stay_held",
        "where TCP is to carry nothing, what came before the switch is never given",
        "wire/verbs/verbs_stream.cc",
        "  Status status = GiveHeld();\n",
        "  Status status;\n",
    ),
    Mutant(
        "rest_of_the_last_word",
        "what came by RDMA before TCP's end is not looked at",
        "wire/verbs/verbs_read.cc",
        "    (void)pipe_->Reap(Now());\n    Deliver();\n  }\n  if (!gone_) owner_->OnStreamLost",
        "  }\n  if (!gone_) owner_->OnStreamLost",
    ),
    Mutant(
        "queue_outlives_its_stream",
        "a stream by RDMA that hung up keeps its queue pair",
        "wire/verbs/verbs_stream.cc",
        '  tcp_->HangUp("");\n  DropPipe();\n',
        '  tcp_->HangUp("");\n',
    ),
    Mutant(
        "slots_are_not_given_back",
        "of an RDMA ring no slots are given back but with other words",
        "wire/verbs/rc_pipe.cc",
        "  return Send(RcKind::kSlots, 0, now_ns);\n",
        "  return {};\n",
    ),
    Mutant(
        "spreads_without_notice",
        "the sending end of a connection of NCCL's spreads over its stripes sooner than the other one expects",
        "plugin/stripes.h",
        "if (mark) this->spread_from_ = this->next_ + kNotice;",
        "if (mark) this->spread_from_ = this->next_ + 1;",
    ),
    Mutant(
        "mark_is_not_seen",
        "the receiving end of a connection of NCCL's never spreads over its stripes",
        "plugin/stripes.h",
        "if (marked != kNoMessage) this->spread_from_ = marked + kNotice;",
        "(void)marked;",
    ),
    Mutant(
        "posts_without_notice",
        "a receive is posted to a stripe before it is known which one it belongs to",
        "plugin/stripes.h",
        "if (marked == kNoMessage && this->next_ >= oldest + kNotice) return {};",
        "(void)oldest;",
    ),
    Mutant(
        "stripes_of_another_group",
        "the stripes of a connection of NCCL's have numbers by which they are not put together",
        "plugin/connections.cc",
        "(group & ~kStripeMask) + i",
        "group + i",
    ),
    Mutant(
        "attempt_is_forgotten",
        "a connection that NCCL asks for a second time is not known any more",
        "plugin/connections.cc",
        "  connecting_[attempt] = {std::move(group), Now()};\n",
        "  group->Close();\n",
    ),
    Mutant(
        "attempts_are_dropped",
        "connections that NCCL still asks for are taken for abandoned",
        "plugin/connections.cc",
        "bool old = Now() - entry->second.asked_ns >= for_ns;",
        "bool old = for_ns >= 0;",
    ),
    Mutant(
        "place_is_still_sent",
        "a collective overwrites what it still sends",
        "collective/step_machine.cc",
        "  return lane.sends.empty() || static_cast<int64_t>(lane.sends.front().step) > step.barrier;",
        "  return true;",
    ),
    Mutant(
        "barrier_is_not_kept",
        "a collective receives into a place that an earlier step still needs",
        "collective/step_machine.cc",
        "  if (static_cast<int64_t>(lane.done) <= step.barrier) return false;\n",
        "",
    ),
    Mutant(
        "owes_no_receives",
        "a rank that gets no further posts no receives for those that wait for it",
        "collective/step_machine.cc",
        "if (!has_bounce && !(stuck && owed)) {",
        "if (!has_bounce) {",
    ),
    Mutant(
        "sends_are_not_awaited",
        "a collective ends before its last sends are acknowledged",
        "collective/step_machine.cc",
        "lane.done == lane.steps.size() && lane.sends.empty();",
        "lane.done == lane.steps.size();",
    ),
    Mutant(
        "bounce_is_given_twice",
        "two receives of a collective share a bounce buffer",
        "collective/step_machine.cc",
        "  lane.free_bounces.pop_back();\n",
        "",
    ),
    Mutant(
        "bounce_is_not_copied",
        "what came to a bounce buffer and replaces is not put in its place",
        "collective/step_machine.cc",
        "    std::memcpy(output_ + offset, bounce, bytes);\n",
        "    (void)bytes;\n",
    ),
    Mutant(
        "failure_stays_with_a_rank",
        "a rank whose collective failed keeps its connections",
        "collective/step_machine.cc",
        "  for (const auto& sender : senders_) sender->Close();\n",
        "",
    ),
    Mutant(
        "slow_for_ever",
        "a NIC that was slow once is never given more",
        "failover/drain_meter.h",
        "std::min(known * kGrowth, best)",
        "std::min(known, best)",
    ),
    Mutant(
        "fence_comes_with_the_next_event",
        "a place that the peer may still write to is taken back, and fenced only with the next event",
        "wire/verbs/verbs_write.cc",
        "  (void)pipe_->queue().Fence();\n  Break(reason);\n",
        "  Break(reason);\n",
        test="VerbsWrite.ALateWriteDoesNotLandOnceItsPlaceWasTakenBack",
    ),
    Mutant(
        "send_ends_without_a_fence",
        "a send ends during its writes, whose queue pair is fenced only with the next event",
        "wire/verbs/verbs_stream.cc",
        'return FenceNow("RDMA: another path brought a chunk whose writes were under way");',
        'return Break("RDMA: another path brought a chunk whose writes were under way");',
        test="VerbsWrite.ASendsMemoryIsNotReadOnceItWasTakenBack",
    ),
    Mutant(
        "lost_word_is_not_asked_for",
        "an acknowledgement that a device has lost is awaited in silence",
        "wire/verbs/rc_pipe.cc",
        "  progress->loses_unseen = true;\n",
        "",
        test="Verbs.AnAcknowledgementWhoseCompletionIsLostIsAskedFor",
    ),
    Mutant(
        "absence_is_an_answer",
        "by RDMA what an answer waited for a stopped process counts as the time that it took",
        "wire/verbs/rc_pipe.cc",
        " - (absent_ns_ - flights_.front().absent_ns)",
        "",
        test="RcPipe.HowLongAnAnswerWaitedIsNoPartOfTheTimeThatItTook",
    ),
    Mutant(
        "tests_are_not_looked_for",
        "while RDMA is only tested nobody looks with each tick, so that answers that are slow seem to have waited",
        "wire/verbs/verbs_read.cc",
        "  if (!known || pipe_ == nullptr ||",
        "  if (!known || !by_rdma_ ||",
        test="Explore.AloneRdmaBearsANicOfEightMbits",
    ),
    Mutant(
        "larger_messages_always_count",
        "messages of up to 64 KiB show slow pairs by their answers also where NICs show what they drain",
        "failover/send_comm_late.cc",
        "  if (outgoing(path).last_bytes > kSmallBytes && OthersShowDrains(path, now_ns)) return;\n",
        "  if (outgoing(path).last_bytes > 4 * kSmallBytes) return;\n",
        test="Explore.FourHealthyHostsSetNoNicAside",
    ),
    Mutant(
        "greeting_is_not_looked_at",
        "a stream that is tested before it is greeted is not ticked, so that answers that are slow seem to have waited",
        "failover/send_comm.cc",
        "    if (path.state == PathState::kGreeting) (void)path.stream->ReadProgress(&progress);\n",
        "",
        test="Explore.AloneRdmaBearsANicOfEightMbits",
    ),
    Mutant(
        "end_of_work_is_not_looked_at",
        "a pair that stops working is looked at with the next tick",
        "failover/send_comm_late.cc",
        "    if (!outgoing(path).in_flight.empty()) LookAt(works_until_ns, now_ns);\n",
        "",
        test="Explore.ABlackHoleIsFoundWhenItIsDue",
    ),
    Mutant(
        "answer_is_not_looked_for",
        "who asked the peer looks for the answer with the next tick",
        "failover/send_comm_late.cc",
        "  if (now_ns - asked_word_ns_ < kAskAheadNs) LookAt(std::max(due_ns + 1, now_ns + kMillisecond), now_ns);\n",
        "  (void)due_ns, (void)now_ns;\n",
        test="Explore.ABlackHoleIsFoundWhenItIsDue",
    ),
    Mutant(
        "works_from_the_tick",
        "a pair works for so long after the tick that saw its last acknowledgement, not after that itself",
        "failover/comm_way.cc",
        "path.acked_bytes, now_ns - progress.since_ack_ns, now_ns);",
        "path.acked_bytes, now_ns, now_ns);",
        test="Explore.ABlackHoleIsFoundWhenItIsDue",
    ),
    Mutant(
        "looks_when_it_is_due",
        "what is due is looked at when it is not late yet, and then with the next tick",
        "failover/send_comm_late.cc",
        "  LookAt(due_ns + 1, now_ns);\n",
        "  LookAt(due_ns, now_ns);\n",
        test="Explore.ABlackHoleIsFoundWhenItIsDue",
    ),
    Mutant(
        "doubted_queue_is_an_excuse",
        "on a NIC in doubt a queue that may have grown excuses silence",
        "failover/send_comm_late.cc",
        "silent && NicIsDoubted(path) ? chunk.sent_ns : passed_ns",
        "passed_ns",
        test="Explore.AChunkThatGoesOutOverANicInDoubtDoesNotWaitAsIfForAQueue",
    ),
    Mutant(
        "unhurried_nowhere",
        "a lossy path is given up as soon where others carry what it would",
        "failover/stall.h",
        "params.mode == 2 ? kUnhurried : 1",
        "1",
        test="Explore.FullNicsAreNoLostNics",
    ),
    Mutant(
        "unhurried_everywhere",
        "a lossy path is given up later also where its data waits for that",
        "failover/stall.h",
        "params.mode == 2 ? kUnhurried : 1",
        "kUnhurried",
        test="Stall.LimitsAsATable",
    ),
]


@dataclass(frozen=True)
class Unit:
    """A file to compile: ``command`` without what it makes, and where ``made`` lies in the unchanged build.

    ``target``: core, simulated, explore or tests.
    """

    target: str
    source: Path
    command: list[str]
    made: Path

    def includes(self, file: Path) -> bool:
        """Whether a change of ``file`` is one of what this makes."""
        needed = self.made.with_suffix(".d").read_text().replace("\\\n", " ").split()
        return str(file) in needed

    def compile(self, made: Path, first: Path | None = None) -> str:
        """The compiler's last words where it failed, else nothing; files of ``first`` stand for those of the tree."""
        command = [*self.command]
        if first is not None:
            at = next(i for i, word in enumerate(command) if word.startswith("-"))
            command[at:at] = ["-I", str(first)]
            changed = first / self.source.relative_to(NATIVE)
            if changed.exists():
                command = [str(changed) if word == str(self.source) else word for word in command]
        command += ["-MD", "-MF", str(made.with_suffix(".d")), "-o", str(made)]
        return run(command)


def run(command: list[str]) -> str:
    """Its last words where it failed, else nothing."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:] or f"{command[0]} failed"


def units(folder: Path) -> list[Unit]:
    """What r2ccl-explore and the unit tests that mutants name are made of, as the project's own build compiles it."""
    missing = [tool for tool in ("cmake", "g++") if shutil.which(tool) is None]
    if missing or not (shutil.which("make") or shutil.which("ninja")):
        sys.exit(f"{', '.join(missing) or 'make or ninja'}: not found; install it, or add its folder to PATH")
    generator = [] if shutil.which("make") else ["-G", "Ninja"]
    words = [
        "-DR2CCL_PYTHON=OFF",
        "-DR2CCL_CUDA=OFF",
        "-DR2CCL_TESTS=ON",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    failed = run(["cmake", *generator, "-S", str(NATIVE), "-B", str(folder / "cmake"), *words])
    if failed:
        sys.exit(f"cmake could not configure {NATIVE}:\n{failed}")
    tests = ["^TEST\\({}, {}\\)".format(*mutant.test.split(".")) for mutant in MUTANTS if mutant.test]
    shared = ("pair.cc", "relay.cc")  # what tests have in common
    found = []
    for entry in json.loads((folder / "cmake" / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        target = re.search(r"CMakeFiles/r2ccl_(core|simulated|explore|tests)\.dir/", entry["command"])
        if target is None:
            continue
        text = source.read_text()
        wanted = source.name in shared or any(re.search(test, text, re.MULTILINE) for test in tests)
        if target.group(1) == "tests" and not wanted:
            continue
        command = shlex.split(entry["command"])
        at = command.index("-o")
        del command[at : at + 2]
        made = folder / (str(source.relative_to(NATIVE)).replace("/", "_") + ".o")
        found.append(Unit(target.group(1), source, command, made))
    return found


def parts(base: list[Unit], test: str) -> list[Unit]:
    """Those of the program that looks: the unit tests where one is named, else r2ccl-explore."""
    common = ("core", "simulated")
    return [unit for unit in base if unit.target in common or (unit.target == "tests") == bool(test)]


def link(objects: list[Path], program: Path, test: str = "") -> str:
    """The linker's last words where it failed, else nothing."""
    libraries = ["-lgtest", "-lgtest_main"] if test else []
    return run(["g++", *map(str, objects), "-o", str(program), "-pthread", *libraries])


@contextmanager
def as_it_is(jobs: int) -> Iterator[tuple[ThreadPoolExecutor, Path, list[Unit]]]:
    """The code as it is, compiled in a temporary folder: threads for more, the folder and its units."""
    with tempfile.TemporaryDirectory(prefix="r2ccl-changed-") as temporary, ThreadPoolExecutor(jobs) as pool:
        folder = Path(temporary)
        base = units(folder)
        for failed in pool.map(lambda unit: unit.compile(unit.made), base):
            if failed:
                sys.exit(f"the code as it is does not compile:\n{failed}")
        yield pool, folder, base


@dataclass(frozen=True)
class Finding:
    """What became of a mutant: ``what`` broke (nothing: it survived), or ``failed`` says why it was not tried."""

    mutant: Mutant
    what: str = ""
    runs: int = 0
    seconds: float = 0
    failed: str = ""

    def line(self) -> str:
        """For the terminal."""
        if self.failed:
            return f"{self.mutant.name}: {self.failed}"
        return f"{self.mutant.name}: {self.what or 'SURVIVED'} ({self.runs} runs, {self.seconds:.1f} s)"

    def row(self) -> str:
        """For the table."""
        what = self.failed.splitlines()[0] if self.failed else self.what or "**survived**"
        cells = [
            f"`{self.mutant.name}`",
            self.mutant.what,
            self.mutant.file,
            what,
            str(self.runs),
            f"{self.seconds:.1f}",
        ]
        return "| " + " | ".join(cells) + " |"


def look(program: Path, test: str, seconds: float) -> tuple[str, int, float]:
    """What broke (nothing: it survived), after how many runs and seconds."""
    return run_test(program, test, seconds) if test else explore(program, seconds)


def explore(program: Path, seconds: float) -> tuple[str, int, float]:
    """The same by seeds."""
    begin = time.monotonic()
    command = [str(program), "--seconds", str(seconds), "--jobs", "1", "--no-shrink"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        return "a run never ended", 0, time.monotonic() - begin
    elapsed = time.monotonic() - begin
    runs = re.search(r"^(\d+) runs", done.stdout, re.MULTILINE)
    count = int(runs.group(1)) if runs else 0
    if done.returncode == 0:
        return "", count, elapsed
    broken = re.search(r"^BROKEN: (.*)$", done.stdout, re.MULTILINE)
    what = broken.group(1) if broken else f"it crashed (status {done.returncode})"
    what = re.sub(r": flow .*", "", what)
    return re.sub(r"\d+", "N", what).rstrip(), count, elapsed


def run_test(program: Path, test: str, seconds: float) -> tuple[str, int, float]:
    """The same by a unit test."""
    begin = time.monotonic()
    try:
        done = subprocess.run([program, f"--gtest_filter={test}"], capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"the test {test} never ended", 1, time.monotonic() - begin
    return "" if done.returncode == 0 else f"the test {test} failed", 1, time.monotonic() - begin


def try_out(mutant: Mutant, base: list[Unit], folder: Path, seconds: float) -> Finding:
    """Plants it, compiles what it changes, and looks for it."""
    original = NATIVE / mutant.file
    text = original.read_text()
    if text.count(mutant.old) != 1:
        return Finding(mutant, failed=f"does not apply to {mutant.file}")
    own = folder / mutant.name
    changed = own / "tree" / mutant.file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(mutant.old, mutant.new))
    objects = []
    for unit in parts(base, mutant.test):
        if not unit.includes(original):
            objects.append(unit.made)
            continue
        objects.append(own / unit.made.name)
        failed = unit.compile(objects[-1], own / "tree")
        if failed:
            return Finding(mutant, failed=f"does not compile\n{failed}")
    program = own / "changed"
    failed = link(objects, program, mutant.test)
    if failed:
        return Finding(mutant, failed=f"does not link\n{failed}")
    what, runs, elapsed = look(program, mutant.test, seconds)
    shutil.rmtree(own)
    return Finding(mutant, what, runs, elapsed)


def known_rows(file: Path) -> dict[str, str]:
    """What a table says already, by mutant."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {found.group(1): line for line in lines if (found := re.match(r"\| `(\w+)` \|", line))}


def table(rows: dict[str, str]) -> str:
    """As Markdown, in the order of MUTANTS."""
    return (
        "# Mistakes planted in the transport, and what found them\n\n"
        "Made by `python tests/native/mutants.py --write`: one change at a time in the code that ships, then fresh "
        "seeds of\n`r2ccl-explore` on one core until a rule was broken, or the unit test that is named.\n\n"
        "| mutant | what it does wrong | file | what was found | runs until then | seconds |\n"
        "|---|---|---|---|---|---|\n" + "".join(rows[one.name] + "\n" for one in MUTANTS if one.name in rows)
    )


def try_all(
    mutants: list[Mutant], files: list[Path], pool: ThreadPoolExecutor, try_it: Callable[[Mutant], Finding]
) -> list[Finding]:
    """Tells and writes each finding as soon as it is known: who ends this halfway has what was found until then."""
    rows = {file: known_rows(file) for file in files}
    findings = []
    for future in as_completed([pool.submit(try_it, mutant) for mutant in mutants]):
        findings.append(finding := future.result())
        print(f"{len(findings)} of {len(mutants)}: {finding.line()}", flush=True)
        for file in files:
            rows[file][finding.mutant.name] = finding.row()
            file.write_text(table(rows[file]))
    return findings


def main() -> int:
    """Every mutant, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    unknown = set(options.only) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    with as_it_is(options.jobs) as (pool, folder, base):
        for test in sorted({mutant.test for mutant in mutants}):
            program = folder / ("tests" if test else "r2ccl-explore")
            broken = link([unit.made for unit in parts(base, test)], program, test) or look(program, test, 5)[0]
            if broken:
                sys.exit(f"the code as it is breaks a rule: {broken}")
        files = ([TABLE] if options.write else []) + ([options.table] if options.table else [])
        findings = try_all(mutants, files, pool, lambda mutant: try_out(mutant, base, folder, options.seconds))
    return 1 if any(finding.failed or not finding.what for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
