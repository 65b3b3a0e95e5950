// SPDX-License-Identifier: MIT
#include "tools/calibrate/tail_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace sdcguard {
namespace {

constexpr double kWidth = 720, kHeight = 480, kLeft = 70, kRight = 20, kTop = 40, kBottom = 70;
constexpr int kPoints = 400;  // of a curve
constexpr const char* kColours[] = {"#1b6ca8", "#2a9d5c", "#c05a1e"};

std::string text(const char* format, auto... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string escaped(const std::string& plain) {
  std::string out;
  for (const char c : plain) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// Data to points of the picture.
struct Axes {
  double x_low, x_high, lowest;  // lowest: power of ten at the foot
  double x(double value) const { return kLeft + (value - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight); }
  double y(double share) const { return kTop + std::log10(share) / lowest * (kHeight - kTop - kBottom); }
};

std::string grid(const Axes& axes) {
  std::string svg;
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  const int step = axes.lowest < -12 ? 3 : axes.lowest < -6 ? 2 : 1;
  for (int power = 0; power >= axes.lowest; power -= step) {
    const double y = axes.y(std::pow(10, power));
    svg += text("<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/>", kLeft, y, right);
    svg += text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n", kLeft - 8, y + 4, power);
  }
  const double wide = (axes.x_high - axes.x_low) / 8;
  double tick = std::pow(10, std::floor(std::log10(wide)));
  while (tick < wide) tick *= tick * 2 > wide ? 2 : 2.5;
  for (double v = std::ceil(axes.x_low / tick) * tick; v <= axes.x_high; v += tick) {
    svg += text("<path d=\"M%.1f %.1fV%.1f\" stroke=\"#ddd\"/>", axes.x(v), kTop, bottom);
    svg += text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n", axes.x(v), bottom + 18, v);
  }
  svg += text("<path d=\"M%.1f %.1fV%.1fH%.1f\" stroke=\"#333\" fill=\"none\"/>\n", kLeft, kTop, bottom, right);
  svg += text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">|r| / (sigma s) of a cell</text>\n",
              (kLeft + right) / 2, bottom + 38);
  return svg;
}

}  // namespace

std::string tail_svg(const Exceedances& measured, const TailReport& report, const std::string& title,
                     const std::string& note) {
  std::vector<double> values;
  for (const Exceedance& one : measured.kept) values.push_back(one.value);
  std::sort(values.begin(), values.end());
  const auto all = static_cast<double>(measured.values);
  const double furthest = std::max({report.threshold, values.empty() ? 0 : values.back(), measured.limit + 1});
  const Axes axes{measured.limit, measured.limit + (furthest - measured.limit) * 1.05,
                  std::floor(std::log10(std::min(report.per_value, 1 / all))) - 1};
  std::string svg = text(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text("<text x=\"%g\" y=\"24\" font-size=\"15\">", kLeft) + escaped(title) + "</text>\n" + grid(axes);
  for (size_t f = 0; f < std::size(report.fits); ++f) {
    const TailFit& fit = report.fits[f];
    const double share = static_cast<double>(fit.above) / all;
    std::string path;
    for (int i = 0; i <= kPoints; ++i) {
      const double x = fit.limit + (axes.x_high - fit.limit) * i / kPoints;
      const double beyond = share * fit.shape.survival(x - fit.limit);
      if (beyond < std::pow(10, axes.lowest)) break;
      path += text("%c%.1f %.1f", path.empty() ? 'M' : 'L', axes.x(x), axes.y(beyond));
    }
    svg += "<path d=\"" + path + text("\" stroke=\"%s\" fill=\"none\" stroke-width=\"1.5\"/>\n", kColours[f]);
    svg += text("<text x=\"%g\" y=\"%g\" fill=\"%s\">beyond %.3g: %llu values, xi %.3f, scale %.3f</text>\n",
                kWidth - kRight - 270, kTop + 16 * static_cast<double>(f + 1), kColours[f], fit.limit,
                static_cast<unsigned long long>(fit.above), fit.shape.xi, fit.shape.scale);
  }
  // Measured: every value far out, a thinned row of them where they crowd.
  const size_t count = values.size();
  for (size_t i = 0, last = count; i < count; ++i) {
    const size_t beyond = count - i;  // this value and those above it
    if (beyond > 100 && static_cast<double>(beyond) > 0.97 * static_cast<double>(last)) continue;
    last = beyond;
    svg += text("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"#333\"/>\n", axes.x(values[i]),
                axes.y(static_cast<double>(beyond) / all));
  }
  svg += text("<path d=\"M%.1f %.1fV%.1f\" stroke=\"#b00020\" stroke-dasharray=\"5 3\"/>\n", axes.x(report.threshold),
              kTop, kHeight - kBottom);
  svg += text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#b00020\">threshold %.2f</text>\n",
              axes.x(report.threshold) - 4, kHeight - kBottom - 6, report.threshold);
  svg += text("<text x=\"%g\" y=\"%g\">", kLeft, kHeight - 12) + escaped(note) + "</text>\n</svg>\n";
  return svg;
}

}  // namespace sdcguard
