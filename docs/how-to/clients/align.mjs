// A client of mx-serve: node align.mjs de-en "das Haus ist rot" "the house is red"
const base = process.env.MX_SERVE ?? "http://127.0.0.1:8017";
const headers = { "Content-Type": "application/json" };
if (process.env.MX_SERVE_TOKEN) headers.Authorization = `Bearer ${process.env.MX_SERVE_TOKEN}`;

/** Align pairs `{src, tgt}`; spans count as JavaScript strings do. */
export async function align(langs, pairs) {
  const body = JSON.stringify({ langs, pairs, offsets: "utf16" });
  const response = await fetch(`${base}/align`, { method: "POST", headers, body });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${response.status}: ${answer.error}`);
  return answer.results;
}

const [langs, src, tgt] = process.argv.slice(2);
const [found] = await align(langs, [{ src, tgt }]);
found.links.forEach(([i, j], k) => {
  const word = (text, [start, end]) => text.slice(start, end);
  console.log(word(src, found.src_spans[i]), word(tgt, found.tgt_spans[j]), found.scores[k]);
});
