// ECharts with the parts that the page draws; each chart has a name for those who cannot see it.
import { BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import {
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { el, shown } from "./text.js";
import { color, themes } from "./theme.js";

use([
  BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart, CanvasRenderer,
  DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent,
  VisualMapComponent,
]);

const FONT = "12px system-ui, sans-serif";

/** Options of all charts. */
export function base() {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { fontFamily: "system-ui, sans-serif", fontSize: 12, color: color("--text") },
    tooltip: {
      confine: true,
      transitionDuration: 0,
      backgroundColor: color("--raised"),
      borderColor: color("--line"),
      textStyle: { color: color("--text"), fontSize: 12 },
      extraCssText: "max-width:min(36rem,90vw);white-space:normal;overflow-wrap:anywhere",
    },
  };
}

export function axis(more = {}) {
  return {
    axisLine: { lineStyle: { color: color("--muted") } },
    nameTextStyle: { color: color("--text") },
    splitLine: { lineStyle: { color: color("--line") } },
    ...more,
    axisLabel: { color: color("--text"), hideOverlap: true, ...more.axisLabel },
  };
}

/** The bar below a chart that widens a part of it. */
export function slider(more = {}) {
  return {
    type: "slider", height: 18, bottom: 12, showDataShadow: false, brushSelect: false,
    borderColor: color("--line"), backgroundColor: color("--raised"), fillerColor: `${color("--muted")}33`,
    handleStyle: { color: color("--page"), borderColor: color("--muted") },
    moveHandleStyle: { color: color("--line") }, textStyle: { color: color("--text") },
    emphasis: { handleStyle: { borderColor: color("--accent") }, moveHandleStyle: { color: color("--muted") } },
    ...more,
  };
}

/** The inside of a tooltip: a heading and pairs of words, as nodes, never as HTML. */
export function tip(heading, pairs = []) {
  const rows = pairs.map(([name, value]) => el("tr", {}, el("th", {}, name), el("td", {}, shown(value))));
  return el("div", { class: "tip" }, el("strong", {}, shown(heading)), el("table", {}, el("tbody", {}, ...rows)));
}

/**
 * Draw a chart into `host`, and again when the colours or the width change.
 * @param {() => object} option ECharts' option, made anew for each set of colours
 * @returns {{chart: any, dispose: () => void}}
 */
export function draw(host, label, option) {
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", label);
  const chart = init(host, null, { renderer: "canvas" });
  const paint = () => chart.setOption(option(), { notMerge: true });
  const watch = new ResizeObserver(() => chart.resize());
  watch.observe(host);
  themes.addEventListener("change", paint);
  paint();
  const dispose = () => {
    watch.disconnect();
    themes.removeEventListener("change", paint);
    chart.dispose();
  };
  return { chart, dispose };
}

const ruler = document.createElement("canvas").getContext("2d");

/** How wide a text is, in pixels. */
export function textWidth(text, font = FONT) {
  ruler.font = font;
  return ruler.measureText(text).width;
}
