// DrainMeter: what a NIC is taken to drain grows while it is idle, and no further than to the best NIC.
#include "failover/drain_meter.h"

#include "gtest/gtest.h"

namespace r2ccl {
namespace {

class DrainMeterTest : public ::testing::Test {
 protected:
  DrainMeterTest() {
    environment_.SetNics(std::vector<Nic>(2));
    meter_ = std::make_unique<DrainMeter>(&environment_);
  }

  // `times` samples in which these NICs are busy at these rates, 0 for idle.
  void Samples(int times, double first, double second) {
    double rates[] = {first, second};
    for (int i = 0; i < times; ++i) {
      now_ns_ += kStepNs;
      for (size_t nic = 0; nic < 2; ++nic) {
        environment_.nic_states[nic].drained_bytes += static_cast<uint64_t>(rates[nic] * kStepNs);
        environment_.nic_states[nic].in_flight_bytes = rates[nic] > 0 ? 1 << 20 : 0;
      }
      meter_->Sample(now_ns_);
    }
  }
  double drain(size_t nic) const { return environment_.nic_states[nic].drain_bytes_per_ns; }

  static constexpr int64_t kStepNs = 10'000'000;
  Environment environment_;
  std::unique_ptr<DrainMeter> meter_;
  int64_t now_ns_ = 1;
};

TEST_F(DrainMeterTest, IdleMinutesDoNotMakeANicLookFast) {
  Samples(20, 0.5, 0.5);
  Samples(60'000, 0, 0);
  EXPECT_LT(drain(0), 1.0);
  EXPECT_LT(drain(1), 1.0);
}

TEST_F(DrainMeterTest, ANicThatIsMeasuredLateIsWorthAsMuchAsTheOthers) {
  Samples(20, 0.5, 0.5);
  environment_.nic_states[1].drain_bytes_per_ns = 0;  // never had enough to do
  Samples(1000, 0, 0);
  Samples(5, 0, 0.5);
  EXPECT_GT(2 * drain(1), drain(0));
}

TEST_F(DrainMeterTest, AMuchSlowerNicIsWorthWhatItShows) {
  environment_.params.zero_copy_bytes = 0;
  Samples(20, 0.5, 0.05);
  Samples(200, 0.5, 0);
  EXPECT_LT(drain(1), 0.1) << "nothing went over it";
  environment_.nic_states[1].drain_bytes_per_ns = 0.3;  // as a trial shows
  Samples(200, 0.5, 0);
  EXPECT_GT(drain(1), 0.4);
}

TEST_F(DrainMeterTest, ANicThatWasSlowIsTriedAgainWhereThereAreNoTrials) {
  environment_.params.mode = 1;
  Samples(20, 0.5, 0.05);
  EXPECT_LT(drain(1), 0.1);
  Samples(200, 0, 0);
  EXPECT_GT(drain(1), 0.4);
}

// Nothing says what those drain, but they drained more than this one lately.
TEST_F(DrainMeterTest, ANicThatWasSlowIsTriedAgainBesideNicsThatAreNeverFull) {
  environment_.params.mode = 1;
  auto samples = [this](int times, double slow) {
    for (int i = 0; i < times; ++i) {
      environment_.nic_states[0].drained_bytes += static_cast<uint64_t>(0.5 * kStepNs);
      Samples(1, 0, slow);
    }
  };
  samples(20, 0.05);
  EXPECT_EQ(drain(0), 0);
  EXPECT_LT(drain(1), 0.1);
  samples(200, 0);
  EXPECT_GT(drain(1), 0.4);
}

// As in a black hole: when it is back, what it drained is still known.
TEST_F(DrainMeterTest, ASilentNicIsNotTakenForASlowOne) {
  Samples(20, 0.5, 0.5);
  for (int i = 0; i < 30; ++i) {
    now_ns_ += kStepNs;
    meter_->Sample(now_ns_);  // much is under way, and nothing of it arrives
  }
  EXPECT_GT(drain(1), 0.4);
}

// A few bytes got through where packets of full size did not. They are no rate, or nothing would go over it for seconds
// once it is back: where there are no trials, what is known grows slowly.
TEST_F(DrainMeterTest, AFewBytesAreNoRate) {
  environment_.nic_states[1].in_flight_bytes = 1 << 20;
  for (int i = 0; i < 30; ++i) {
    now_ns_ += kStepNs;
    environment_.nic_states[1].drained_bytes += 10;
    meter_->Sample(now_ns_);
  }
  EXPECT_EQ(drain(1), 0);
}

// A chunk takes longer than a sample: its acknowledgement is no rate of its own.
TEST_F(DrainMeterTest, ASlowNicIsKnownWellAlthoughItAcknowledgesSeldom) {
  constexpr double kTrue = 0.005;
  constexpr uint64_t kChunk = 128 << 10;
  NicState& slow = environment_.nic_states[1];
  slow.in_flight_bytes = 1 << 20;
  auto acknowledged = [&] { return static_cast<uint64_t>(kTrue * static_cast<double>(now_ns_)) / kChunk * kChunk; };
  for (int i = 0; i < 300; ++i) {
    now_ns_ += kStepNs;
    slow.drained_bytes = acknowledged();
    meter_->Sample(now_ns_);
    if (i > 100) {
      EXPECT_GT(drain(1), 0.6 * kTrue) << i;
      EXPECT_LT(drain(1), 1.6 * kTrue) << i;
    }
  }
}

}  // namespace
}  // namespace r2ccl
