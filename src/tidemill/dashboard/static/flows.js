// The graph of a flow: its size, moving it, and its small map. Without this script, links change the size.
"use strict";

const graph = {
  view: $("#graph-view"),
  map: $(".graph-map"),
  held: null, // the drag in progress
  dragged: false,
  chosen: null, // the size that the reader chose on this page

  get picture() { return $("svg.flow", this.view); },
  get natural() { const box = this.picture.viewBox.baseVal; return { width: box.width, height: box.height }; },
  get percent() { return (100 * this.picture.getBoundingClientRect().width) / this.natural.width; },

  // As large as the page allows, but never larger than natural.
  fitting() {
    const { width, height } = this.natural;
    const least = Math.min(this.view.clientWidth / width, (0.74 * innerHeight) / height, 1);
    return Math.floor(100 * least);
  },

  // Changes the size; the point at x and y of the view stays where it is.
  zoom(percent, x = this.view.clientWidth / 2, y = this.view.clientHeight / 2) {
    const before = this.percent;
    const now = Math.round(Math.min(Math.max(percent, 10), 300));
    const at = [this.view.scrollLeft + x, this.view.scrollTop + y];
    this.chosen = now;
    // The server draws the same size after the next change, and when the page is loaded again.
    const address = new URL(location.href);
    if (now === 100) address.searchParams.delete("scale");
    else address.searchParams.set("scale", String(now));
    history.replaceState(history.state, "", address);
    this.size(now);
    this.view.scrollLeft = (at[0] * now) / before - x;
    this.view.scrollTop = (at[1] * now) / before - y;
    this.show();
  },

  size(percent) {
    const { width, height } = this.natural;
    this.picture.classList.remove("fit");
    this.picture.setAttribute("width", String(Math.floor((width * percent) / 100)));
    this.picture.setAttribute("height", String(Math.floor((height * percent) / 100)));
    $("[data-percent]").textContent = `${percent} %`;
  },

  step(direction) {
    const scales = [10, 25, 50, 75, 100, 150, 200, 300];
    const now = Math.round(this.percent);
    return direction > 0 ? scales.find((each) => each > now) ?? now : scales.findLast((each) => each < now) ?? now;
  },

  // Shows the part of the picture that is in view, if that is not the whole.
  show() {
    const { view, map } = this;
    const scale = this.percent / 100;
    // In a low view it would cover the nodes.
    map.hidden = view.clientHeight < 280 || (view.scrollWidth <= view.clientWidth + 1 && view.scrollHeight <= view.clientHeight + 1);
    const lens = $(".lens", map);
    lens.setAttribute("viewBox", `0 0 ${this.natural.width} ${this.natural.height}`);
    for (const [name, value] of Object.entries({
      x: view.scrollLeft, y: view.scrollTop,
      width: Math.min(view.clientWidth, view.scrollWidth), height: Math.min(view.clientHeight, view.scrollHeight),
    })) lens.firstElementChild.setAttribute(name, String(Math.round(value / scale)));
  },

  // Moves the view to a place of the small map.
  jump(event) {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform($(".lens", this.map).getScreenCTM().inverse());
    const scale = this.percent / 100;
    this.view.scrollTo(place.x * scale - this.view.clientWidth / 2, place.y * scale - this.view.clientHeight / 2);
  },

  begin() {
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-zoom]");
      if (!button || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const wanted = { in: () => this.step(1), out: () => this.step(-1), fit: () => this.fitting() }[button.dataset.zoom];
      this.zoom(wanted ? wanted() : 100);
    });
    for (const each of $$("[data-zoom]:not([href])")) each.setAttribute("href", "#graph-title");
    this.view.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const frame = this.view.getBoundingClientRect();
      const factor = Math.exp(-Math.max(Math.min(event.deltaY, 100), -100) / 400);
      const wanted = this.percent * factor;
      this.zoom(factor > 1 ? Math.ceil(wanted) : Math.floor(wanted), event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
    this.view.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "+" || event.key === "=") this.zoom(this.step(1));
      else if (event.key === "-") this.zoom(this.step(-1));
      else if (event.key === "0") this.zoom(this.fitting());
      else return;
      event.preventDefault();
    });
    this.drag();
    this.view.addEventListener("scroll", () => this.show(), { passive: true });
    new ResizeObserver(() => this.show()).observe(this.view);
    // An update that was on its way has the size of the address before.
    new MutationObserver(() => { if (this.chosen) this.size(this.chosen); this.show(); }).observe(this.view, { childList: true, subtree: true });
    this.show();
  },

  // Dragging with a mouse moves the picture; fingers scroll it anyway. A drag does not open the node under it.
  drag() {
    this.view.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      this.held = { x: event.clientX, y: event.clientY, left: this.view.scrollLeft, top: this.view.scrollTop, far: false };
    });
    addEventListener("pointermove", (event) => {
      if (!this.held) return;
      const [right, down] = [event.clientX - this.held.x, event.clientY - this.held.y];
      this.held.far ||= Math.hypot(right, down) > 4;
      if (!this.held.far) return;
      this.view.classList.add("held");
      this.view.scrollTo({ left: this.held.left - right, top: this.held.top - down, behavior: "instant" });
    });
    addEventListener("pointerup", () => {
      this.dragged = this.held?.far ?? false;
      this.held = null;
      this.view.classList.remove("held");
      // The click of this drag follows at once; a later one is another.
      setTimeout(() => { this.dragged = false; });
    });
    this.view.addEventListener("click", (event) => { if (this.dragged) event.preventDefault(); }, { capture: true });
    this.view.addEventListener("dragstart", (event) => event.preventDefault());
    this.map.addEventListener("pointerdown", (event) => { this.map.setPointerCapture(event.pointerId); this.jump(event); });
    this.map.addEventListener("pointermove", (event) => { if (this.map.hasPointerCapture(event.pointerId)) this.jump(event); });
  },
};

graph.begin();
