/* Where the two sentences of a pair are broken, so that each pair of lines holds its own links. */
// An additional pair of lines costs as much as so many links that leave theirs. Chosen by eye, on
// the long pairs of docs/screenshots.py: 1 leaves lines half empty, 10 breaks through phrases.
const LINE_COST = 3;
const BAND = 48; // words that the lines of a side may run ahead of the other's, in long pairs

/** Sums of links in the corner above and left of each cell, row by row. */
const cornerSums = (links, rows, columns) => {
  const sums = new Int32Array((rows + 1) * (columns + 1)), width = columns + 1;
  for (const [i, j] of links) sums[(i + 1) * width + j + 1]++;
  for (let i = 1; i <= rows; i++) {
    for (let j = 1; j <= columns; j++) {
      const k = i * width + j;
      sums[k] += sums[k - 1] + sums[k - width] - sums[k - width - 1];
    }
  }
  return sums;
};
/** For each number of words, how many of them fit in one line that ends there. */
const lineRooms = (widths, gap, room) => {
  const fits = [0];
  for (let end = 1, start = 0, width = -gap; end <= widths.length; end++) {
    width += widths[end - 1] + gap;
    while (width > room && start < end - 1) width -= widths[start++] + gap;
    fits.push(end - start);
  }
  return fits;
};
/**
 * Break both sides into equally many lines: [[source end, target end], ...], the last with all words.
 * A line has what fits, or one word that does not; of all ways the one is taken in which the fewest
 * links lead from one pair of lines to another, lines counted in. Either line of a pair may be empty.
 */
export const breakLines = (widths, gap, room, links) => {
  const [rows, columns] = widths.map((side) => side.length), width = columns + 1;
  const fits = widths.map((side) => lineRooms(side, gap, room));
  if (fits[0][rows] === rows && fits[1][columns] === columns) return [[rows, columns]];
  const sums = cornerSums(links, rows, columns);
  const crossing = (i, j) => sums[i * width + columns] + sums[rows * width + j] - 2 * sums[i * width + j];
  const cost = new Float64Array((rows + 1) * width).fill(Infinity), from = new Int32Array(cost.length).fill(-1);
  cost[0] = 0;
  const narrow = rows * columns > 10000;
  for (let i = 0; i <= rows; i++) {
    const middle = Math.round((i * columns) / Math.max(1, rows));
    const low = narrow ? Math.max(0, middle - BAND) : 0, high = narrow ? Math.min(columns, middle + BAND) : columns;
    for (let j = low; j <= high; j++) {
      if (i + j === 0) continue;
      const own = crossing(i, j) + LINE_COST, at = i * width + j;
      for (let a = i - fits[0][i]; a <= i; a++) {
        for (let b = j - fits[1][j]; b <= j; b++) {
          const before = a * width + b;
          if (before !== at && cost[before] + own < cost[at]) {
            cost[at] = cost[before] + own;
            from[at] = before;
          }
        }
      }
    }
  }
  const breaks = [];
  for (let at = rows * width + columns; at > 0; at = from[at]) breaks.push([Math.floor(at / width), at % width]);
  return breaks.reverse();
};
