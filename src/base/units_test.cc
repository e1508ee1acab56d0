#include "base/units.h"

#include <limits>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

TEST(CheckedArithmetic, OverflowIsABrokenInvariant) {
  EXPECT_EQ(checked_add(kLargest - 1, 1), kLargest);
  EXPECT_THROW(checked_add(kLargest, 1), InternalError);
  EXPECT_THROW(checked_add(kLowest, -1), InternalError);
  EXPECT_EQ(checked_multiply(1'000'000'000, 9), 9'000'000'000);
  EXPECT_THROW(checked_multiply(kLargest / 2 + 1, 2), InternalError);
  EXPECT_THROW(Bytes{kLargest} + Bytes{1}, InternalError);
  EXPECT_THROW(Bytes{kLargest} * 2, InternalError);
}

TEST(CheckedArithmetic, DivisionsSayWhatTheyMean) {
  EXPECT_EQ(divide_up(10, 4), 3);
  EXPECT_EQ(divide_up(8, 4), 2);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(divide_exact(12, 4), 3);
  EXPECT_THROW(divide_exact(13, 4), InternalError);
  EXPECT_THROW(divide_exact(13, 0), InternalError);
}

TEST(BytesTest, AddsSubtractsAndCompares) {
  Bytes bytes{10};
  bytes += Bytes{5};
  bytes -= Bytes{3};
  EXPECT_EQ(bytes, Bytes{12});
  EXPECT_LT(Bytes{1}, Bytes{2});
  EXPECT_EQ(Bytes{3} - Bytes{5}, Bytes{-2});
  EXPECT_EQ(allocation_size(Bytes{0}), Bytes{0});
  EXPECT_EQ(allocation_size(Bytes{1}), Bytes{64});
  EXPECT_EQ(allocation_size(Bytes{64}), Bytes{64});
}

TEST(ParseCount, EachUnit) {
  EXPECT_EQ(parse_count("4096").value(), 4096);
  EXPECT_EQ(parse_count("124K").value(), 124e3);
  EXPECT_EQ(parse_count("1.5M").value(), 1.5e6);
  EXPECT_EQ(parse_count("7B").value(), 7e9);
  EXPECT_EQ(parse_count("7b").value(), 7e9);
  EXPECT_EQ(parse_count("1T").value(), 1e12);
  EXPECT_EQ(parse_count("7e9").value(), 7e9);
  EXPECT_EQ(parse_count(" 7 B ").value(), 7e9);
}

TEST(ParseBytes, EachUnit) {
  EXPECT_EQ(parse_bytes("512").value(), Bytes{512});
  EXPECT_EQ(parse_bytes("512B").value(), Bytes{512});
  EXPECT_EQ(parse_bytes("3kB").value(), Bytes{3000});
  EXPECT_EQ(parse_bytes("3KB").value(), Bytes{3000});
  EXPECT_EQ(parse_bytes("3MB").value(), Bytes{3'000'000});
  EXPECT_EQ(parse_bytes("80GB").value(), Bytes{80'000'000'000});
  EXPECT_EQ(parse_bytes("14 GB").value(), Bytes{14'000'000'000});
  EXPECT_EQ(parse_bytes("2TB").value(), Bytes{2'000'000'000'000});
  EXPECT_EQ(parse_bytes("1PB").value(), Bytes{1'000'000'000'000'000});
  EXPECT_EQ(parse_bytes("1KiB").value(), Bytes{1024});
  EXPECT_EQ(parse_bytes("1MiB").value(), Bytes{1 << 20});
  EXPECT_EQ(parse_bytes("80GiB").value(), Bytes{80LL << 30});
  EXPECT_EQ(parse_bytes("1TiB").value(), Bytes{1LL << 40});
  EXPECT_EQ(parse_bytes("1PiB").value(), Bytes{1LL << 50});
  EXPECT_EQ(parse_bytes("1.5GiB").value(), Bytes{3LL << 29});
  EXPECT_EQ(parse_bytes("1.1GB").value(), Bytes{1'100'000'000});
  EXPECT_EQ(parse_bytes("2.5e2").value(), Bytes{250});
  EXPECT_EQ(parse_bytes("9007199254740993").value(), Bytes{9007199254740993});  // beyond a double's integers
}

TEST(ParseBytes, AFractionOfAUnitIsTheNearestByte) {
  EXPECT_EQ(parse_bytes("79.1GiB").value(), Bytes{84'932'978'278});  // 84,932,978,278.4
  EXPECT_EQ(parse_bytes("1.0005KB").value(), Bytes{1001});           // 1000.5, away from zero
  EXPECT_EQ(parse_bytes("0.3KiB").value(), Bytes{307});              // 307.2
  EXPECT_EQ(parse_bytes("139.81 GiB").value(), Bytes{150'119'844'413});
  EXPECT_NE(parse_bytes("1e-12GB").failure().rule.find("less than one byte"), std::string::npos);
  EXPECT_EQ(parse_bytes("0.0GB").value(), Bytes{0});
}

TEST(ParseBytes, Refusals) {
  for (const char* text :
       {"", "GB", "-1GB", "+1GB", "1.5", "0.3B", "80Gb", "80gb", "80 GB extra", "1,000", "nan", "inf", "0x10", "1e30",
        "9223372036854775807.9KB", "8191.9999999999999999PiB", "9223372036854775808", "10000PB"}) {
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  }
  const std::string sentence = parse_bytes("80Gb").failure().sentence();
  EXPECT_NE(sentence.find("80Gb"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("GiB"), std::string::npos) << sentence;
  EXPECT_EQ(parse_bytes("80Gb").failure().code, ExitCode::kUsage);
}

TEST(ParseBandwidth, EachUnit) {
  EXPECT_EQ(parse_bytes_per_second("200GB/s").value(), 200e9);
  EXPECT_EQ(parse_bytes_per_second("200Gb/s").value(), 25e9);
  EXPECT_EQ(parse_bytes_per_second("1GiB/s").value(), 1073741824.0);
  EXPECT_EQ(parse_bytes_per_second("8Mb/s").value(), 1e6);
  EXPECT_EQ(parse_bytes_per_second("8kb/s").value(), 1e3);
  EXPECT_EQ(parse_bytes_per_second("8b/s").value(), 1);
  EXPECT_EQ(parse_bytes_per_second("1.6Tb/s").value(), 200e9);
  EXPECT_EQ(parse_bytes_per_second("12 B/s").value(), 12);
  for (const char* text : {"200", "200GB", "200/s", "200Gbps", "GB/s", "-3GB/s", "200GX/s"}) {
    EXPECT_FALSE(parse_bytes_per_second(text).ok()) << text;
  }
}

TEST(ParseFlopsRate, EachUnit) {
  EXPECT_EQ(parse_flops_per_second("5 FLOP/s").value(), 5);
  EXPECT_EQ(parse_flops_per_second("241GFLOP/s").value(), 241e9);
  EXPECT_EQ(parse_flops_per_second("989.4 TFLOP/s").value(), 989.4 * 1e12);
  EXPECT_EQ(parse_flops_per_second("2.25 PFLOP/s").value(), 2.25e15);
  for (const char* text : {"", "5", "5 TFLOPS", "5 TFLOP", "5 tflop/s", "TFLOP/s", "-5 TFLOP/s", "5 TB/s", "nan"}) {
    EXPECT_FALSE(parse_flops_per_second(text).ok()) << text;
  }
  EXPECT_NE(parse_flops_per_second("5").failure().sentence().find("TFLOP/s"), std::string::npos);
}

TEST(Parse, WhatNoDoubleHoldsIsRefused) {
  EXPECT_FALSE(parse_count("1e300T").ok());
  EXPECT_FALSE(parse_bytes_per_second("1e300PB/s").ok());
  EXPECT_FALSE(parse_flops_per_second("1e300PFLOP/s").ok());
  EXPECT_FALSE(parse_seconds("1e305y").ok());
}

TEST(ExactText, ShortestUnit) {
  EXPECT_EQ(bytes_text(Bytes{80'000'000'000}), "80GB");
  EXPECT_EQ(bytes_text(Bytes{80LL << 30}), "80GiB");
  EXPECT_EQ(bytes_text(Bytes{80'500'000'000}), "80500MB");
  EXPECT_EQ(bytes_text(Bytes{513}), "513B");
  EXPECT_EQ(bytes_text(Bytes{0}), "0B");
  EXPECT_EQ(bandwidth_text(25e9), "25 GB/s");
  EXPECT_EQ(bandwidth_text(3.35e12), "3.35 TB/s");
  EXPECT_EQ(bandwidth_text(0), "0 B/s");
  EXPECT_EQ(flops_rate_text(989.4e12), "989.4 TFLOP/s");
  EXPECT_EQ(duration_text({8e-6}), "8us");
  EXPECT_EQ(duration_text({7200}), "2h");
}

TEST(ExactText, ReadsBackAsTheSameValue) {
  for (const double x : {0.0, 5e-324, 1e-300, 1.0 / 3, 0.1, 1.0, 3e-6, 989.4 * 1e12, 1555e9, 1e22 / 3, 1e300}) {
    EXPECT_EQ(parse_bytes_per_second(bandwidth_text(x)).value(), x);
    EXPECT_EQ(parse_flops_per_second(flops_rate_text(x)).value(), x);
    EXPECT_EQ(parse_seconds(duration_text({x})).value().count, x);
  }
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{999}, std::int64_t{1} << 62, kLargest}) {
    EXPECT_EQ(parse_bytes(bytes_text({n})).value(), Bytes{n});
  }
  EXPECT_THROW(bytes_text(Bytes{-1}), InternalError);
  EXPECT_THROW(bandwidth_text(-1), InternalError);
  EXPECT_THROW(duration_text({std::numeric_limits<double>::infinity()}), InternalError);
}

TEST(ParseSeconds, EachUnit) {
  EXPECT_EQ(parse_seconds("5ns").value().count, 5e-9);
  EXPECT_EQ(parse_seconds("5us").value().count, 5 * 1e-6);
  EXPECT_EQ(parse_seconds("20ms").value().count, 0.02);
  EXPECT_EQ(parse_seconds("1.5s").value().count, 1.5);
  EXPECT_EQ(parse_seconds("3min").value().count, 180);
  EXPECT_EQ(parse_seconds("3m").value().count, 180);
  EXPECT_EQ(parse_seconds("50h").value().count, 180000);
  EXPECT_EQ(parse_seconds("2d").value().count, 172800);
  EXPECT_EQ(parse_seconds("3w").value().count, 3 * 7 * 86400);
  EXPECT_EQ(parse_seconds("3y").value().count, 3 * 365.25 * 86400);
  for (const char* text : {"", "3", "min", "-3min", "3 months", "3M"}) EXPECT_FALSE(parse_seconds(text).ok()) << text;
  EXPECT_NE(parse_seconds("3").failure().sentence().find("no unit"), std::string::npos);
}

TEST(ParseCount, Refusals) {
  for (const char* text : {"", "B", "-7B", "7Q", "7 billion", "1e999", "."})
    EXPECT_FALSE(parse_count(text).ok()) << text;
}

TEST(FormatBytes, DecimalWithTwoDigits) {
  EXPECT_EQ(format_bytes({0}), "0 B");
  EXPECT_EQ(format_bytes({999}), "999 B");
  EXPECT_EQ(format_bytes({1000}), "1.00 KB");
  EXPECT_EQ(format_bytes({112'000'000'000}), "112.00 GB");
  EXPECT_EQ(format_bytes({999'999'999}), "1.00 GB");  // never "1000.00 MB"
  EXPECT_EQ(format_bytes({-2'500'000}), "-2.50 MB");
  EXPECT_EQ(format_bytes({kLargest}), "9.22 EB");
}

TEST(FormatExact, SeparatesThousands) {
  EXPECT_EQ(format_exact(0), "0");
  EXPECT_EQ(format_exact(999), "999");
  EXPECT_EQ(format_exact(1024), "1,024");
  EXPECT_EQ(format_exact(8'030'261'248), "8,030,261,248");
  EXPECT_EQ(format_exact(-123456), "-123,456");
  EXPECT_EQ(format_exact(-123), "-123");
  EXPECT_EQ(format_exact(kLowest), "-9,223,372,036,854,775,808");
}

TEST(FormatSeconds, PicksTheUnitThatPeopleWouldUse) {
  EXPECT_EQ(format_seconds({0}), "0 s");
  EXPECT_EQ(format_seconds({5e-9}), "5.0 ns");
  EXPECT_EQ(format_seconds({12.34e-6}), "12.3 us");
  EXPECT_EQ(format_seconds({0.1225}), "122.5 ms");
  EXPECT_EQ(format_seconds({0.99999}), "1.00 s");
  EXPECT_EQ(format_seconds({75}), "75.00 s");
  EXPECT_EQ(format_seconds({134.2 * 60}), "134.2 min");
  EXPECT_EQ(format_seconds({6.57 * 3600}), "6.57 h");
  EXPECT_EQ(format_seconds({21 * 86400.0}), "21.0 d");
  EXPECT_EQ(format_seconds({3 * 365.25 * 86400}), "3.00 y");
  EXPECT_EQ(format_seconds({std::numeric_limits<double>::infinity()}), "inf s");
}

TEST(FormatFlopsRate, OneDigit) {
  EXPECT_EQ(format_flops_rate(241e9), "241.0 GFLOP/s");
  EXPECT_EQ(format_flops_rate(12), "12.0 FLOP/s");
  EXPECT_EQ(format_flops_rate(999.99e9), "1.0 TFLOP/s");
}

TEST(FormatHex, IsPrintfsA) {
  EXPECT_EQ(format_hex(1.0), "0x1p+0");
  EXPECT_EQ(format_hex(-0.1), "-0x1.999999999999ap-4");
  EXPECT_EQ(format_hex(0.0), "0x0p+0");
  EXPECT_EQ(format_hex(5e-324), "0x0.0000000000001p-1022");
  EXPECT_EQ(format_hex(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace trireme
