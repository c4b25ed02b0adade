// RapiDoc takes its colours from an attribute, not from the system.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.querySelector("rapi-doc").setAttribute("theme", dark.matches ? "dark" : "light");
dark.addEventListener("change", paint);
paint();
