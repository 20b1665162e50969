// The theme gives the dialog of the search no name for screen readers.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
