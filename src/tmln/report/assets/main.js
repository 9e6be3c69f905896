// The page put together: sections built from the view, and built again when it changes.

const SECTIONS = [
  ...[tableSection, benchmarksSection, matricesSection, classesSection, curvesSection, seedsSection],
  ...[sensitivitySection, frontsSection, costSection, landscapeSection, runsSection, warningsSection],
].filter(({ there = () => true }) => there());
const bodies = new Map();

function begin() {
  byId("title").textContent = DATA.title;
  const entries = [{ id: "summary", title: "Summary" }, ...SECTIONS];
  byId("nav").append(el("ul", {}, entries.map(sectionLink)));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  for (const { id, title } of SECTIONS) {
    const body = el("div");
    bodies.set(id, body);
    const heading = el("h2", { id: `${id}-title` }, title);
    byId("sections").append(el("section", { id, "aria-labelledby": `${id}-title` }, heading, body));
  }
  byId("foot").textContent =
    `Written by tmln ${DATA.tmln} from the runs in ${DATA.title}. Nothing on this page was fetched from anywhere.`;
  byId("view-toggle").addEventListener("click", () => {
    const open = byId("view").classList.toggle("open");
    byId("view-toggle").setAttribute("aria-expanded", String(open));
  });
  byId("details").addEventListener("close", () => {
    if (state.open) update({ open: "" });
  });
  byId("details").addEventListener("click", (event) => {
    if (event.target === byId("details")) byId("details").close();
  });
  byId("theme").addEventListener("click", () => update({ theme: themeNow() === "dark" ? "light" : "dark" }));
  darkWanted.addEventListener("change", () => {
    applyTheme();
    render();
  });
  listeners.push(changed);
  applyTheme();
  render();
  details();
  watchSections();
  const at = state.at || location.hash.slice(1);
  if (entries.some(({ id }) => id === at)) requestAnimationFrame(() => byId(at).scrollIntoView());
  document.documentElement.dataset.ready = String(Math.round(performance.now())); // milliseconds from opening
}

function sectionLink({ id, title, nav }) {
  const click = (event) => {
    event.preventDefault();
    goTo(id);
  };
  return el("li", {}, el("a", { href: `#${id}`, "data-section": id, on: { click } }, nav ?? title));
}

function changed(keys) {
  if (keys.includes("theme")) applyTheme();
  if (keys.some((key) => key !== "open" && key !== "at")) render();
  if (keys.includes("open") || keys.includes("b")) details();
}

/** All sections. One that fails says so, and the others are there all the same. */
function render() {
  rebuild(byId("controls"), controls());
  byId("view-toggle").textContent = viewInWords();
  rebuild(byId("sentences"), headline());
  rebuild(byId("tiles"), tiles());
  rebuild(byId("whole"), wholeSummary());
  for (const section of SECTIONS) {
    const body = bodies.get(section.id);
    try {
      rebuild(body, section.render());
    } catch (error) {
      console.warn(error);
      rebuild(body, empty(`This part cannot be shown: ${error.message}.`));
    }
  }
  redraw();
}

function goTo(id) {
  update({ at: id === "summary" ? "" : id });
  byId(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  const title = byId(id).querySelector("h2") ?? byId(id);
  title.tabIndex = -1;
  title.focus({ preventScroll: true });
}

/** The section in sight is marked in the navigation. */
function watchSections() {
  const links = new Map([...document.querySelectorAll("#nav a")].map((link) => [link.dataset.section, link]));
  const mark = (id) => {
    for (const [name, link] of links)
      name === id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
    const [nav, link] = [byId("nav"), links.get(id)]; // on a phone the entries scroll sideways
    nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.clientWidth) / 2;
  };
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) mark(entry.target.id);
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  for (const id of links.keys()) watcher.observe(byId(id));
}

const darkWanted = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function themeNow() {
  if (printing) return "light";
  return ["light", "dark"].includes(state.theme) ? state.theme : darkWanted.matches ? "dark" : "light";
}

function applyTheme() {
  const theme = themeNow();
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  byId("theme").setAttribute("aria-label", "Dark page");
}

/** On paper everything is drawn, light, and as wide as the paper. */
function forPaper(on) {
  printing = on;
  document.documentElement.classList.toggle("paper", on);
  applyTheme();
  render();
  if (on) drawAll();
}

window.addEventListener("beforeprint", () => forPaper(true));
window.addEventListener("afterprint", () => forPaper(false));
let width = innerWidth,
  waiting;
window.addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's bars come and go
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 120);
});

// for the tests, and for whoever opens the console
window.tmlnReport = { data: DATA, fixed, markdown, latex, strong, view, csv, plain };
begin();
