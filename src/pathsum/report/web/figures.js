// Figures: specifications that stand in the page, drawn by Vega.
import { inTurn } from "./dom.js";

const readJson = (id) => JSON.parse(document.getElementById(id).textContent);

const drawFigure = async (figure) => {
  if (figure.dataset.drawn) return;
  figure.dataset.drawn = "yes";
  const target = figure.querySelector(".chart");
  const options = { config: readJson("chart-theme"), renderer: "svg", actions: false, mode: "vega-lite" };
  try {
    await vegaEmbed(target, readJson(figure.dataset.spec), options);
    // Its marks are no words: who hears the page has the figure's description, and the tables.
    target.querySelector("svg").setAttribute("aria-hidden", "true");
    figure.querySelector(".save").hidden = false;
  } catch (error) {
    target.textContent = `This figure could not be drawn: ${error.message}`;
  }
};

// A saved picture has the page's colours as they are now, not the variables they come from.
const savedFigure = (figure) => {
  const picture = figure.querySelector(".chart svg").cloneNode(true);
  picture.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const colours = getComputedStyle(document.documentElement);
  const text = new XMLSerializer().serializeToString(picture);
  return text.replace(/var\((--[a-z]+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
};

const saveFigure = (figure) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([savedFigure(figure)], { type: "image/svg+xml" }));
  link.download = `${figure.id}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

export function figures(root) {
  const found = [...root.querySelectorAll("figure[data-spec]")];
  inTurn(found, drawFigure);
  found.forEach((figure) => figure.querySelector(".save").addEventListener("click", () => saveFigure(figure)));
}
