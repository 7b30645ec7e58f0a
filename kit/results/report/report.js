(() => {
  const box = document.getElementById("filter"), input = box.querySelector("input"), told = box.querySelector("output");
  const cases = [...document.querySelectorAll(".case")];
  const texts = cases.map(item => item.dataset.find.toLowerCase());
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    cases.forEach((item, index) => {
      const fits = words.every(word => texts[index].includes(word));
      if (item.hidden === fits) item.hidden = !fits;
      shown += fits;
    });
    if (words.length) document.querySelectorAll("details.group").forEach(group => {
      group.open = group.querySelector(".case:not([hidden])") !== null;
    });
    told.textContent = words.length ? `${shown} of ${cases.length} entries` : "";
  };
  let timer;
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 150); });
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  box.hidden = false;
  open();
})();
