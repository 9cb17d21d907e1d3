// Where NICs are, by what the kernel says: made again, renamed, moved, without an address, and after lost messages.
#include "net/nic_table.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/link_monitor.h"
#include "pair.h"

namespace r2ccl {
namespace {

in_addr AddressOf(const char* text) { return in_addr{inet_addr(text)}; }

// Two NICs, on interfaces 2 and 3, as after the first dump.
class NicTableTest : public testing::Test {
 protected:
  void SetUp() override {
    table.BeginSync();
    Tell(2, "eth0");
    table.AddAddress(2, AddressOf("10.0.0.1"));
    Tell(3, "eth1");
    table.AddAddress(3, AddressOf("10.0.1.1"));
    table.EndSync();
    EXPECT_EQ(Changes(), "");
  }

  void Tell(int ifindex, const std::string& name, bool running = true) {
    table.SetLink(ifindex, name, running, name == "lo");
  }

  // Such as "0 lost, 1 lost and back".
  std::string Changes() {
    std::string text;
    for (const NicChange& change : table.TakeChanges()) {
      if (!text.empty()) text += ", ";
      text += std::to_string(change.nic);
      if (change.lost) text += " lost";
      if (change.lost && change.running) text += " and";
      if (change.running) text += " back";
      why = change.why;
    }
    return text;
  }

  std::vector<Nic> nics{{"eth0", 2, AddressOf("10.0.0.1"), 24}, {"eth1", 3, AddressOf("10.0.1.1"), 24}};
  NicTable table{nics};
  std::string why;
};

TEST_F(NicTableTest, CarrierGoesAndComesBack) {
  Tell(2, "eth0", false);
  EXPECT_EQ(Changes(), "0 lost");
  EXPECT_EQ(why, "eth0 is down or has no carrier");
  EXPECT_EQ(Changes(), "") << "said once";
  Tell(2, "eth0");
  EXPECT_EQ(Changes(), "0 back");
}

TEST_F(NicTableTest, AMomentWithoutCarrierIsALoss) {
  Tell(2, "eth0", false);
  Tell(2, "eth0");
  EXPECT_EQ(Changes(), "0 lost and back");
}

TEST_F(NicTableTest, MadeAgainItHasAnotherIndexAndWaitsForItsAddress) {
  table.DropLink(2);
  EXPECT_EQ(Changes(), "0 lost");
  EXPECT_EQ(why, "no interface has the address 10.0.0.1");
  EXPECT_EQ(nics[0].ifindex.get(), 0);
  Tell(9, "eth0");
  EXPECT_EQ(Changes(), "") << "its name alone is no reason to dial";
  table.AddAddress(9, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "0 back");
  EXPECT_EQ(nics[0].ifindex.get(), 9);
  table.DropLink(9);
  table.AddAddress(10, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "0 lost") << "an address on an interface that is not told of yet";
  Tell(10, "eth0");
  EXPECT_EQ(Changes(), "0 back");
}

TEST_F(NicTableTest, MadeAgainWhileNobodyLooked) {
  table.DropLink(3);
  Tell(4, "eth1");
  table.AddAddress(4, AddressOf("10.0.1.1"));
  EXPECT_EQ(Changes(), "1 lost and back");
  EXPECT_EQ(why, "it went and came back: 10.0.1.1 is on eth1, interface 4");
  table.DropLink(4);
  Tell(4, "eth1");
  table.AddAddress(4, AddressOf("10.0.1.1"));
  EXPECT_EQ(Changes(), "1 lost and back") << "the kernel may give it the same index";
}

TEST_F(NicTableTest, RenamedItIsTheSame) {
  Tell(2, "wan0");
  EXPECT_EQ(Changes(), "");
  Tell(2, "wan0", false);
  EXPECT_EQ(Changes(), "0 lost");
  EXPECT_EQ(why, "wan0 is down or has no carrier");
}

TEST_F(NicTableTest, FollowsItsAddress) {
  table.DropAddress(2, AddressOf("10.0.0.1"));
  Tell(7, "br0");
  EXPECT_EQ(Changes(), "0 lost");
  table.AddAddress(7, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "0 back");
  EXPECT_EQ(why, "10.0.0.1 is on br0, interface 7");
  EXPECT_EQ(nics[0].ifindex.get(), 7);
  table.AddAddress(2, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "") << "it stays while it can";
  table.DropAddress(7, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "0 lost and back");
  EXPECT_EQ(nics[0].ifindex.get(), 2);
}

TEST_F(NicTableTest, OfTwoWithItsAddressTheOneOfItsNameIsTaken) {
  table.DropLink(2);
  Tell(5, "odd0");
  Tell(6, "eth0");
  Tell(8, "odd1");
  for (int ifindex : {5, 6, 8}) table.AddAddress(ifindex, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "0 lost and back");
  EXPECT_EQ(nics[0].ifindex.get(), 6);
}

TEST_F(NicTableTest, AnAddressThatIsGivenBackAtOnceWasNotAway) {
  table.DropAddress(2, AddressOf("10.0.0.1"));
  table.AddAddress(2, AddressOf("10.0.0.1"));
  EXPECT_EQ(Changes(), "");
}

TEST_F(NicTableTest, OtherInterfacesAndAddressesAreNobodysBusiness) {
  Tell(7, "veth1", false);
  table.AddAddress(2, AddressOf("10.0.0.2"));
  table.AddAddress(7, AddressOf("10.9.0.2"));
  table.DropAddress(2, AddressOf("10.0.0.2"));
  table.DropLink(7);
  EXPECT_EQ(Changes(), "");
}

TEST_F(NicTableTest, WhatASyncDoesNotTellOfIsGone) {
  table.BeginSync();
  Tell(2, "eth0");
  EXPECT_EQ(Changes(), "") << "not before all is told";
  table.AddAddress(2, AddressOf("10.0.0.1"));
  table.EndSync();
  EXPECT_EQ(Changes(), "1 lost");
  table.BeginSync();
  Tell(2, "eth0");
  Tell(12, "eth1");
  table.AddAddress(12, AddressOf("10.0.1.1"));
  table.EndSync();
  EXPECT_EQ(Changes(), "0 lost, 1 back") << "an address was taken, and a NIC made again, unheard";
}

TEST(NicTable, SaysNothingBeforeItKnowsAll) {
  std::vector<Nic> nics{{"eth0", 2, AddressOf("10.0.0.1"), 24}};
  NicTable table(nics);
  table.BeginSync();
  table.SetLink(2, "eth0", false, false);
  EXPECT_TRUE(table.TakeChanges().empty());
  table.AddAddress(2, AddressOf("10.0.0.1"));
  table.EndSync();
  auto changes = table.TakeChanges();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].lost && !changes[0].running);
}

TEST(NicTable, AllOf127IsOnTheLoopbackInterface) {
  std::vector<Nic> nics{{"lo", 1, AddressOf("127.0.9.9"), 32}};
  NicTable table(nics);
  table.BeginSync();
  table.SetLink(1, "lo", true, true);
  table.AddAddress(1, AddressOf("127.0.0.1"));
  table.EndSync();
  EXPECT_TRUE(table.TakeChanges().empty());
  EXPECT_EQ(nics[0].ifindex.get(), 1);
  table.SetLink(1, "lo", false, true);
  EXPECT_EQ(table.TakeChanges().size(), 1u);
}

// On this machine's kernel: what it says is understood, and understood again when it has to be asked anew.
TEST(LinkMonitor, AsksTheKernelAgainWhenWordsWereLost) {
  Nic nowhere{.name = "eth0", .address = AddressOf("192.0.2.1")};
  std::vector<Nic> nics{LoopbackNics(1, 1)[0], nowhere};
  LinkMonitor monitor(nics);
  ASSERT_TRUE(monitor.Open().ok());
  std::vector<NicChange> changes;
  ASSERT_TRUE(Until([&] { return !(changes = monitor.Drain()).empty(); }));
  ASSERT_EQ(changes.size(), 1u) << "the loopback interface is up";
  EXPECT_EQ(changes[0].nic, 1);
  EXPECT_EQ(changes[0].why, "no interface has the address 192.0.2.1");
  nics[0].ifindex.Set(0);  // as if it were forgotten
  monitor.Distrust();
  EXPECT_TRUE(
      Until([&] { return monitor.Drain().empty() && nics[0].ifindex.get() == LoopbackNics(1, 1)[0].ifindex.get(); }));
}

}  // namespace
}  // namespace r2ccl
