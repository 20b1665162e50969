// Runs the search of a built site as a browser does: `node search.js SITE`, a query a line on stdin.
// Prints for each query a line of JSON: the pages that it finds, best first.
const fs = require("fs"), path = require("path"), vm = require("vm");
const site = process.argv[2], folder = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(folder).find((name) => /^search.*\.js$/.test(name));
let listen, answer;
globalThis.self = globalThis;
globalThis.addEventListener = (_, handler) => (listen = handler);
globalThis.postMessage = (message) => answer(message.data);
vm.runInThisContext(fs.readFileSync(path.join(folder, worker), "utf8"));
const ask = (type, data) =>
  new Promise((resolve) => {
    answer = resolve;
    listen({ data: { type, data } });
  });
(async () => {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
  await ask(0, { ...index, options: {} });
  for (const query of fs.readFileSync(0, "utf8").trim().split("\n")) {
    const { items } = await ask(2, query);
    console.log(JSON.stringify(items.map((group) => group[0].location.split("#")[0])));
  }
})();
