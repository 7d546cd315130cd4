// Light and dark: what the system says, until the reader chooses.
import { el } from "./text.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
export const themes = new EventTarget();
let chosen = null;
let printing = false;

export const current = () => (printing ? "light" : (chosen ?? (dark.matches ? "dark" : "light")));

function apply() {
  document.documentElement.dataset.theme = current();
  themes.dispatchEvent(new Event("change"));
}

/** A colour of the style sheet: `color("--busy")`. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The button that changes between light and dark. */
export function themeButton() {
  const button = el("button", { type: "button", class: "quiet", id: "theme" });
  const label = () => {
    button.textContent = current() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${button.textContent.toLowerCase()} colours`);
  };
  button.addEventListener("click", () => {
    chosen = current() === "dark" ? "light" : "dark";
    apply();
  });
  themes.addEventListener("change", label);
  label();
  return button;
}

export function startTheme() {
  dark.addEventListener("change", apply);
  // Paper is white.
  for (const [event, value] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      printing = value;
      apply();
    });
  }
  apply();
}
