"""The report's style sheet: one column on a phone, two on a desk, tidy on paper.

Pages whose drawings take their colours from it come in the dark too.
"""

DARK = """
:root { color-scheme: light dark; --paper: #fff; --soft: #f4f6f8; }
body { background: var(--paper); }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181c; --soft: #1e242b; --ink: #e7ebee; --quiet: #a3adb7; --line: #36404a;
    --accent: #62b3e8; }
}
"""

CSS = """
:root { color-scheme: light; --ink: #1f2933; --quiet: #5c6773; --line: #dfe5ea; --accent: #0072b2; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
} main { max-width: 66rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
header { border-bottom: 1px solid var(--line); padding-bottom: 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: .2rem 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
p, li, h3, summary { overflow-wrap: break-word; }
.eyebrow, nav, figcaption, .remark { color: var(--quiet); font-size: .875rem; }
.eyebrow { margin: 0; }
.verdict { font-size: 1.2rem; line-height: 1.45; max-width: 50rem; overflow-wrap: anywhere; }
.note { border-left: 3px solid #d55e00; padding: .1rem .75rem; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: 1.25rem 0 .5rem; }
.facts div { min-width: 5rem; }
.facts dt { color: var(--quiet); font-size: .8125rem; }
.facts dd { margin: 0; font-size: 1.45rem; font-weight: 600; font-variant-numeric: tabular-nums; }
nav { padding: .75rem 0 0; }
nav a { color: var(--accent); text-decoration: none; margin-right: 1.1rem; white-space: nowrap; }
section { padding: 2rem 0 0; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .85rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--quiet); font-weight: 500; font-size: .8125rem; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
.text { text-align: left; }
.number { text-align: right; white-space: nowrap; }
.results td { padding-top: .55rem; padding-bottom: .55rem; }
.pairs td:last-child { overflow-wrap: anywhere; }
.counts td:nth-child(2) { min-width: 15rem; }
.results td:first-child { min-width: 8.5rem; }
.dense td { padding-top: .15rem; padding-bottom: .15rem; font-size: .875rem; }
.below td { padding: 0 0 .6rem; font-size: .875rem; }
tr:has(+ .below) td { border-bottom: 0; padding-top: .5rem; }
.below p { margin: .15rem 0; max-width: min(60rem, 100vw - 2.5rem);
  overflow-wrap: anywhere; white-space: pre-line; }
.below b { color: var(--quiet); font-weight: 500; margin-right: .5rem; }
.pairs td:first-child { color: var(--quiet); white-space: nowrap; }
.pairs td { font-size: .875rem; padding-top: .25rem; padding-bottom:
.25rem; } .columns { columns: 24rem 2; column-gap: 2.5rem; }
.columns > div { break-inside: avoid; }
.columns h3:first-child { margin-top: 0; }
.gallery { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1.5rem 2rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { padding-top: .35rem; max-width: 30rem; }
code { font: .875em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap:
anywhere; } @media (max-width: 40rem) {
  main { padding-top: 1.25rem; }
  h1 { font-size: 1.5rem; }
  .verdict { font-size: 1.075rem; }
  .pairs td:first-child { white-space: normal; }
  th, td { padding-left: .5rem; padding-right: .5rem; }
}
@media print {
  main { max-width: none; padding: 0; }
  body { font-size: 10.5pt; }
  nav { display: none; }
  h2, h3, h2 + .remark { break-after: avoid; }
  figure, tr, .facts, .gallery > * { break-inside: avoid; }
  .gallery { grid-template-columns: 1fr 1fr; }
  .scroll { overflow: visible; }
  @page { margin: 16mm; }
}
"""
