// Reads the test vectors of flashverify (safetensors) and judges outputs by them. C++17, little-endian machines.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>
namespace flashverify {
struct Tensor { std::string dtype; std::vector<int64_t> shape; std::vector<double> values; };  // row-major, exact
using Vector = std::map<std::string, Tensor>;
template <class T> T at(const char* p) { T x; std::memcpy(&x, p, sizeof x); return x; }
inline double element(const std::string& dtype, const char* p, size_t i) {
  if (dtype == "F64") return at<double>(p + 8 * i);
  if (dtype == "F32") return at<float>(p + 4 * i);
  if (dtype == "I32") return at<int32_t>(p + 4 * i);
  if (dtype == "U8") return at<uint8_t>(p + i);
  const uint16_t bits = at<uint16_t>(p + 2 * i);
  if (dtype == "BF16") { const uint32_t wide = uint32_t(bits) << 16; return at<float>(reinterpret_cast<const char*>(&wide)); }
  const int e = bits >> 10 & 31, m = bits & 1023;  // F16
  const double size = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(m + 1024, e - 25) : std::ldexp(m, -24);
  return bits >> 15 ? -size : size;
}
inline Vector read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {}), head(all, 8, at<uint64_t>(all.data()));
  static const std::regex entry(R"re("([^"]+)":\{"dtype":"(\w+)","shape":\[([\d,]*)\],"data_offsets":\[(\d+),\d+\]\})re"), number(R"(\d+)");
  Vector found;
  for (std::sregex_iterator m(head.begin(), head.end(), entry), end; m != end; ++m) {
    Tensor t{(*m)[2], {}, {}};
    const std::string shape = (*m)[3];
    size_t count = 1;
    for (std::sregex_iterator n(shape.begin(), shape.end(), number); n != end; ++n) { t.shape.push_back(std::stoll(n->str())); count *= t.shape.back(); }
    for (size_t i = 0; i < count; ++i) t.values.push_back(element(t.dtype, all.data() + 8 + head.size() + std::stoull((*m)[4]), i));
    found[(*m)[1]] = t;
  }
  return found;
}
// Error over bound: right where it is at most 1, infinite where no bound excuses the value. `got` has the order of `NAME.expected`.
inline double ratio(const Vector& vector, const std::string& output, size_t i, double got) {
  const double expected = vector.at(output + ".expected").values[i], bound = vector.at(output + ".bound").values[i];
  const int rule = int(vector.at(output + ".rule").values[i]);  // 0 bound, 1 anything, 2 may overflow, 3 either way, 4 must
  if (rule == 1 || got == expected) return 0;
  if (std::isinf(got)) return rule == 3 || (rule > 1 && (got > 0) == (expected > 0)) ? 0 : INFINITY;
  return std::isnan(got) || rule == 4 || bound == 0 ? INFINITY : std::abs(got - expected) / bound;
}
}  // namespace flashverify
