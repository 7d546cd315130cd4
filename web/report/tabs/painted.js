// The rectangles of boxes at one zoom, in whole pixels: a box is one where it fills pixels, and
// what is left of it is added up pixel by pixel, each as high as the share of its time.

/**
 * @param {{start_ns: number, dur_ns: number, busy_ns: number, count: number}[]} boxes of one track
 * @param {number} from the first ns that is shown
 * @param {number} to the end of what is shown
 * @param {number} pixels how many there are for it
 * @param {(box: object) => string} toneOf the colour of a box
 * @returns {{x: number, end: number, low: number, high: number, tone: string, box: object, count: number, share: number, named: boolean}[]}
 *   pixels from `x` to before `end`, of the height of the track from `low` to `high`; `share` is
 *   that of all in the pixel, `box` the longest, `count` how many there are
 */
export function paint(boxes, from, to, pixels, toneOf) {
  const scale = pixels / (to - from);
  const rects = [];
  const bins = new Map();
  for (const box of boxes) {
    const begin = Math.max(0, (box.start_ns - from) * scale);
    const end = Math.min(pixels, (box.start_ns + box.dur_ns - from) * scale);
    if (end <= begin) continue;
    const share = Math.min(1, box.busy_ns / Math.max(1, box.dur_ns));
    const tone = toneOf(box);
    const [first, last] = [Math.ceil(begin), Math.floor(end)];
    if (last <= first) {
      for (let at = Math.floor(begin); at < end; at += 1) fill(bins, at, box, tone, share * (Math.min(end, at + 1) - Math.max(begin, at)));
      continue;
    }
    rects.push({ x: first, end: last, low: 0, high: share, tone, box, count: 1, share, named: true });
    if (first > begin) fill(bins, first - 1, box, tone, share * (first - begin));
    if (end > last) fill(bins, last, box, tone, share * (end - last));
  }
  for (const [x, bin] of bins) stack(rects, x, bin);
  return rects;
}

function fill(bins, at, box, tone, share) {
  if (!bins.has(at)) bins.set(at, { tones: new Map(), box, count: 0 });
  const bin = bins.get(at);
  bin.tones.set(tone, (bin.tones.get(tone) ?? 0) + share);
  bin.count += 1;
  if (box.dur_ns > bin.box.dur_ns) bin.box = box;
}

/** One colour upon another; streams that were added up may take more than the pixel has. */
function stack(rects, x, { tones, box, count }) {
  const share = [...tones.values()].reduce((sum, each) => sum + each, 0);
  let low = 0;
  for (const [tone, own] of tones) {
    const high = low + own / Math.max(1, share);
    rects.push({ x, end: x + 1, low, high, tone, box, count, share: Math.min(1, share), named: false });
    low = high;
  }
}
