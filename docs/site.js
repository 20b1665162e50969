// The theme gives the dialog of the search no name for screen readers.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
// Tables and signatures that scroll are reached with the keyboard. The theme wraps tables late, and
// makes code that scrolls downwards unreachable.
const scrolls = [".md-typeset__scrollwrap", ".signature code"].map((one) => `${one}:not([tabindex])`);
new MutationObserver(() => {
  for (const one of document.querySelectorAll(scrolls.join())) one.tabIndex = 0;
}).observe(document.body, { attributeFilter: ["tabindex"], childList: true, subtree: true });
