// The theme gives the dialog of the search no name for screen readers.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
// Tables and code that scroll sideways are reached with the keyboard. The theme wraps tables late.
new MutationObserver(() => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    one.tabIndex = 0;
  }
}).observe(document.body, { childList: true, subtree: true });
