'use strict';
(() => {
  // The contents: open beside the text on wide screens, folded above it on narrow ones.
  const contents = document.querySelector('.contents');
  const wide = matchMedia('(min-width: 1080px)');
  const fold = () => { contents.open = wide.matches; };
  wide.addEventListener('change', fold);
  fold();
  const links = new Map();
  for (const link of contents.querySelectorAll('a')) {
    const target = document.getElementById(link.hash.slice(1));
    links.set(target, link);
    link.addEventListener('click', () => { if (!wide.matches) contents.open = false; });
  }
  const headings = [...links.keys()];
  let current = null;
  const mark = () => {
    let here = headings[0];
    for (const heading of headings) if (heading.getBoundingClientRect().top < 120) here = heading;
    if (here === current) return;
    if (current) links.get(current).removeAttribute('aria-current');
    if (here) links.get(here).setAttribute('aria-current', 'true');
    current = here;
  };
  let waits = false;
  addEventListener('scroll', () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; mark(); });
  }, { passive: true });
  mark();

  // Print every table.
  let folded = [];
  addEventListener('beforeprint', () => {
    folded = [...document.querySelectorAll('details.table:not([open])')];
    for (const one of folded) one.open = true;
  });
  addEventListener('afterprint', () => { for (const one of folded) one.open = false; });

  // The values of a plot, on hover, tap and arrow keys.
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.hidden = true;
  tip.setAttribute('role', 'status');
  document.body.append(tip);
  let shown = null;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // The marks of a plot in groups that are shown together: those of a size, or a bar.
  const read = (svg) => {
    if (svg.groups) return svg.groups;
    const by = svg.dataset.by;
    const groups = new Map();
    for (const use of svg.querySelectorAll('use')) {
      const title = use.querySelector('title');
      const [name, place, value] = title.textContent.split('\n');
      // The browser would show it in addition.
      title.remove();
      const at = Number(use.getAttribute(by));
      if (!groups.has(at)) groups.set(at, { at, place, marks: [] });
      groups.get(at).marks.push({ use, name, value, y: Number(use.getAttribute('y')) });
    }
    svg.groups = [...groups.values()].sort((a, b) => a.at - b.at);
    for (const group of svg.groups) group.marks.sort((a, b) => a.y - b.y);
    svg.cross = svg.querySelector('.cross');
    return svg.groups;
  };

  const hide = () => {
    if (!shown) return;
    for (const on of shown.querySelectorAll('use.on')) on.classList.remove('on');
    shown.cross.removeAttribute('d');
    tip.hidden = true;
    shown = null;
  };

  const show = (svg, index) => {
    hide();
    const group = read(svg)[index];
    if (!group) return;
    svg.index = index;
    shown = svg;
    const list = element('ul');
    for (const one of group.marks) {
      one.use.classList.add('on');
      const item = element('li');
      const swatch = element('i', '', one.use.parentNode.getAttribute('class'));
      item.append(swatch, element('span', one.name), element('span', one.value));
      list.append(item);
    }
    tip.replaceChildren(element('p', group.place), list);
    tip.hidden = false;
    const view = svg.viewBox.baseVal;
    if (svg.dataset.by === 'x') svg.cross.setAttribute('d', `M${group.at},26V${view.height - 37}`);
    // Beside the group, within the window.
    const box = svg.getBoundingClientRect();
    const scale = box.width / view.width;
    const first = group.marks[0].use;
    const x = box.left + Number(first.getAttribute('x')) * scale;
    const y = box.top + group.marks[0].y * scale;
    const size = tip.getBoundingClientRect();
    const right = x + 16 + size.width <= innerWidth - 8;
    const left = right ? x + 16 : x - 16 - size.width;
    let above = svg.dataset.by === 'y' ? y + 14 : y - size.height / 2;
    // A narrow window has no room beside it: below the plot then, or above.
    if (innerWidth < 620 && svg.dataset.by === 'x') {
      above = box.bottom + 6 + size.height < innerHeight ? box.bottom + 6 : box.top - 6 - size.height;
    }
    tip.style.left = `${Math.max(8, Math.min(left, innerWidth - 8 - size.width))}px`;
    tip.style.top = `${Math.max(8, Math.min(above, innerHeight - 8 - size.height))}px`;
  };

  const nearest = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const at = svg.dataset.by === 'x' ? (event.clientX - box.left) * scale : (event.clientY - box.top) * scale;
    let best = 0;
    read(svg).forEach((group, index) => {
      if (Math.abs(group.at - at) < Math.abs(svg.groups[best].at - at)) best = index;
    });
    return best;
  };

  for (const svg of document.querySelectorAll('.plot')) {
    svg.addEventListener('pointermove', (event) => show(svg, nearest(svg, event)));
    svg.addEventListener('pointerdown', (event) => show(svg, nearest(svg, event)));
    svg.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') hide(); });
    svg.addEventListener('blur', hide);
    svg.addEventListener('keydown', (event) => {
      const last = read(svg).length - 1;
      const now = shown === svg ? svg.index : -1;
      const to = {
        ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: last,
      }[event.key];
      if (event.key === 'Escape') hide();
      if (to === undefined) return;
      event.preventDefault();
      show(svg, Math.max(0, Math.min(last, to)));
    });
  }
  addEventListener('pointerdown', (event) => {
    if (shown && !(event.target instanceof Element && event.target.closest('.plot'))) hide();
  });
  addEventListener('scroll', hide, { passive: true });
})();
