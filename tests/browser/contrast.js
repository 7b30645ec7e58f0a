// Of every element with text of its own: the contrast of its colour to the nearest background (WCAG 2.1, 1.4.3).
(() => {
  const numbers = text => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest("script, style, title")) continue;
    const style = getComputedStyle(node), svg = node.namespaceURI.endsWith("svg");
    const a = light(numbers(svg ? style.fill : style.color)), b = light(behind(svg ? node.closest("figure, li") : node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${node.tagName}: ${node.textContent.slice(0, 40)}`);
  }
  return bad;
})()
