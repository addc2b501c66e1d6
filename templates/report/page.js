for (const plot of document.querySelectorAll(".plot")) {
  const spec = JSON.parse(plot.querySelector("script").textContent);
  const options = {renderer: "svg", actions: false, ast: true, tooltip: {theme: "custom", disableDefaultStyle: true}};
  vegaEmbed(plot, spec, options).catch(error => console.error(error));
}
