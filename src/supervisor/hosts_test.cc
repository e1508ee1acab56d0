#include "supervisor/hosts.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/fake_env.h"
#include "supervisor/test_dice.h"

namespace trireme::supervisor {
namespace {

std::string refusal(const std::string& text, const std::string& what = "") {
  const Result<std::vector<Host>> hosts = parse_hosts(text, what);
  if (hosts.ok()) return "";
  EXPECT_EQ(hosts.failure().option, "supervise.hosts");
  return hosts.failure().value + ": " + hosts.failure().rule;
}

TEST(Hosts, ListInOneLine) {
  const std::vector<Host> expected{{"a", 2}, {"b", 2}, {"c", 2, true}, {"d", 1}};
  EXPECT_EQ(parse_hosts("a:2, b:2,c:2:spare , d", "").or_throw(), expected);
}

TEST(Hosts, FileOfLines) {
  const std::string text =
      "# our machines\r\n"
      "\n"
      "node-1.lab slots=2\n"
      "\tnode-2.lab  slots=2   # the old one, spare\n"
      "node_3 spare slots=1024\n"
      "10.0.0.7";
  const std::vector<Host> expected{{"node-1.lab", 2}, {"node-2.lab", 2}, {"node_3", 1024, true}, {"10.0.0.7", 1}};
  EXPECT_EQ(parse_hosts(text, "hosts.txt").or_throw(), expected);
}

TEST(Hosts, RefusalsNameEntryLineAndRule) {
  const std::string slots = "slots must be a whole number between 1 and 1024";
  const std::string name = "a host's name has letters, digits, '-', '.' and '_', a letter or digit first";
  EXPECT_EQ(refusal("a:2\n# b\nc slots=0\n", "hosts.txt"), "c slots=0: hosts.txt, line 3: " + slots);
  EXPECT_EQ(refusal("a:2,b:1025"), "b:1025: " + slots);
  for (const char* wrong : {"a:", "a:-1", "a:+1", "a:2.0", "a:2x", "a:99999999999", "a::2", "a slots=", "a slots=x"}) {
    EXPECT_EQ(refusal(wrong), std::string(wrong) + ": " + slots);
  }
  for (const char* wrong : {":2", "-a:2", ".a:2", "a b/c", "ä:2", "a;b:1", "slots=2"}) {
    EXPECT_NE(refusal(wrong), "") << wrong;
  }
  EXPECT_EQ(refusal("--host:2"), "--host:2: " + name);
  EXPECT_EQ(refusal(std::string(254, 'a') + ":1"), std::string(60, 'a') + "...: " + name);
  EXPECT_EQ(refusal(std::string(253, 'a') + ":1"), "");
  EXPECT_EQ(refusal("a:2:2"), "a:2:2: its slots are said twice");
  EXPECT_EQ(refusal("a:2 slots=2"), "a:2 slots=2: its slots are said twice");
  EXPECT_EQ(refusal("a spare spare"), "a spare spare: spare is said twice");
  EXPECT_EQ(refusal("a 2"), "a 2: \"2\" is not known");
  EXPECT_EQ(refusal("a max_slots=2"), "a max_slots=2: \"max_slots=2\" is not known");
  EXPECT_EQ(refusal("a:2,b:2\nA:3", "x"), "A:3: x, line 2: this host is named twice");
  EXPECT_EQ(refusal("a:1\n\x01\x02", "x"), "??: x, line 2: " + name);
  EXPECT_EQ(refusal("", "x"), "x: no host is named");
  EXPECT_EQ(refusal(" , ,\n# a:2\n"), ": no host is named");
  EXPECT_EQ(refusal("a:2:spare,b spare"), ": all hosts are spares");
}

TEST(Hosts, AsManyAsAnIntCanCount) {
  std::string text;
  for (int i = 0; i < kMostHosts; ++i) text += "h" + std::to_string(i) + ":1024\n";
  EXPECT_EQ(parse_hosts(text, "").or_throw().size(), static_cast<std::size_t>(kMostHosts));
  EXPECT_EQ(refusal(text + "one:1", "x"), "one:1: x, line 65537: at most 65536 hosts are possible");
}

TEST(Hosts, ListOrFile) {
  for (const char* file : {"hosts", "/etc/hosts:2", "./a", "a/b", "hosts.txt"}) EXPECT_TRUE(names_a_file(file)) << file;
  for (const char* list : {"a:1", "a:1,b", ":"}) EXPECT_FALSE(names_a_file(list)) << list;
  FakeEnv env;
  env.put_file("/run/hosts", "a slots=3\nb slots=0\n");
  env.put_file("hosts", "a slots=3\n");
  EXPECT_EQ(load_hosts(env, "hosts").or_throw(), (std::vector<Host>{{"a", 3}}));
  EXPECT_EQ(load_hosts(env, "hosts:3").or_throw(), (std::vector<Host>{{"hosts", 3}}));
  EXPECT_EQ(load_hosts(env, "/run/hosts").failure().rule,
            "/run/hosts, line 2: slots must be a whole number between 1 and 1024");
  EXPECT_EQ(load_hosts(env, "/run/other").failure().rule, "there is no such file");
  EXPECT_EQ(load_hosts(env, "/run").failure().rule, "is a directory");
}

TEST(Placement, RanksFillOneHostAfterTheOther) {
  const std::vector<Host> hosts{{"a", 2}, {"b", 3}, {"c", 1}};
  const Placement all = place(hosts, 6);
  EXPECT_EQ(all.hosts, hosts);
  EXPECT_EQ(all.text(), "a:2 b:3 c:1");
  EXPECT_EQ(place(hosts, 4).text(), "a:2 b:2");
  EXPECT_EQ(place(hosts, 2).text(), "a:2");
  EXPECT_EQ(place(hosts, 0), Placement{});
  EXPECT_EQ(all.host_of(0), "a");
  EXPECT_EQ(all.host_of(2), "b");
  EXPECT_EQ(all.host_of(5), "c");
  EXPECT_THROW(all.host_of(6), InternalError);
  EXPECT_THROW(all.host_of(-1), InternalError);
  EXPECT_THROW(place(hosts, 7), InternalError);
  EXPECT_THROW(place(hosts, -1), InternalError);
}

// An entry in any of its forms.
std::string written(const Host& host, Dice& dice) {
  std::string text = host.name;
  if (dice.coin()) {
    if (host.slots != 1 || dice.coin()) text += ":" + std::to_string(host.slots);
    if (host.spare) text += dice.coin() ? ":spare" : "  spare";
    return text;
  }
  if (host.spare && dice.coin()) return text + " spare slots=" + std::to_string(host.slots);
  return text + "\t slots=" + std::to_string(host.slots) + (host.spare ? " spare " : "");
}

TEST(Hosts, RandomListsComeBack) {
  Dice dice(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<Host> hosts;
    std::string text;
    int line = 1;
    const int count = dice.upto(7);
    for (int i = 0; i < count; ++i) {
      const int slots = dice.coin() ? dice.upto(8) : dice.upto(kMostSlots);
      hosts.push_back({"h" + std::to_string(dice.upto(1000)) + "-" + std::to_string(i), slots, i > 0 && dice.coin()});
      text += written(hosts.back(), dice);
      if (dice.coin()) {
        text += dice.coin() ? "\n" : " # a:1, a:2\n\n";
        line += text.ends_with("\n\n") ? 2 : 1;
      } else {
        text += ", ";
      }
    }
    ASSERT_EQ(parse_hosts(text, "f").or_throw(), hosts) << text;

    // One more that is wrong: refused where it stands.
    const Host& again = hosts[static_cast<std::size_t>(dice.upto(count) - 1)];
    const auto [wrong, rule] =
        dice.coin() ? std::pair(again.name, std::string("this host is named twice"))
                    : std::pair(std::string("z:0"), std::string("slots must be a whole number between 1 and 1024"));
    ASSERT_EQ(refusal(text + wrong, "f"), wrong + ": f, line " + std::to_string(line) + ": " + rule) << text;
  }
}

TEST(Placement, RandomPlacements) {
  Dice dice(2);
  for (int round = 0; round < 1000; ++round) {
    std::vector<Host> hosts;
    std::vector<std::string> by_slot;
    const int count = dice.upto(7);
    for (int i = 0; i < count; ++i) {
      hosts.push_back({"h" + std::to_string(i), dice.upto(5)});
      by_slot.insert(by_slot.end(), static_cast<std::size_t>(hosts.back().slots), hosts.back().name);
    }
    const int ranks = dice.upto(static_cast<int>(by_slot.size()));
    const Placement placement = place(hosts, ranks);
    ASSERT_EQ(placement.ranks(), ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(placement.host_of(rank), by_slot[static_cast<std::size_t>(rank)]);
    }
    ASSERT_EQ(placement, place(placement.hosts, ranks));
    std::string list = placement.text();
    std::ranges::replace(list, ' ', ',');
    ASSERT_EQ(parse_hosts(list, "").or_throw(), placement.hosts);
    hosts.back().spare = count > 1;
    ASSERT_EQ(parse_hosts(to_text(hosts), "").or_throw(), hosts);
    hosts.back().spare = false;
    for (std::size_t i = 0; i + 1 < placement.hosts.size(); ++i) ASSERT_EQ(placement.hosts[i], hosts[i]);
  }
}

}  // namespace
}  // namespace trireme::supervisor
