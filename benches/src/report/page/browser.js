// Runs inside a copy of a page, before the page's own script: records what goes wrong, then uses the page as a reader
// does, and tells the page around it what it found.
'use strict';
(() => {
  const problems = [];
  const problem = (text) => { if (problems.length < 40 && !problems.includes(text)) problems.push(text); };
  addEventListener('error', (event) => {
    const from = event.target !== window ? `load of ${event.target.tagName}` : event.message;
    problem(`script error: ${from}`);
  }, true);
  addEventListener('unhandledrejection', (event) => problem(`script error: ${event.reason}`));
  for (const level of ['error', 'warn']) console[level] = (...words) => problem(`console ${level}: ${words.join(' ')}`);
  document.addEventListener('securitypolicyviolation', (event) => problem(`external request: ${event.blockedURI}`));

  const asked = new URLSearchParams(location.search);
  const dark = asked.get('dark') === '1';
  const counts = { tables: 0, links: 0, plots: 0, points: 0 };
  const root = document.documentElement;

  const overflow = (when) => {
    if (root.scrollWidth > innerWidth) problem(`overflow ${when}: ${root.scrollWidth} > ${innerWidth}`);
  };

  const requests = () => {
    for (const entry of performance.getEntriesByType('resource')) problem(`external request: ${entry.name}`);
    for (const one of document.querySelectorAll('[src], [href], [srcset], [data], [action]')) {
      for (const name of ['src', 'href', 'srcset', 'data', 'action']) {
        const value = one.getAttribute(name);
        if (value !== null && !value.startsWith('#')) problem(`external request: ${name}=${value}`);
      }
    }
  };

  const tables = () => {
    for (const details of document.querySelectorAll('details')) {
      details.open = false;
      details.querySelector('summary').click();
      if (!details.open) problem('details: a click opens nothing');
    }
    for (const table of document.querySelectorAll('table')) {
      counts.tables += 1;
      const box = table.closest('.scroll');
      const title = table.closest('details')?.querySelector('summary').textContent ?? '';
      if (!box || !['auto', 'scroll'].includes(getComputedStyle(box).overflowX)) {
        problem(`table in no scroll box: ${title}`);
        continue;
      }
      if (box.getBoundingClientRect().right > innerWidth) problem(`scroll box too wide: ${title}`);
      [...table.rows[0].cells].forEach((head, column) => {
        const cells = [...table.tBodies[0].rows].map((row) => row.cells[column]?.textContent);
        if (cells.includes(undefined)) problem(`table has rows of other lengths: ${title}`);
        const counts = ['#wrong', 'root', 'date'].some((name) => head.textContent.startsWith(name));
        const numbers = column > 0 && cells.some((text) => /\d/.test(text))
          && cells.every((text) => /^[-–\d.\s/·]*$/.test(text));
        if (numbers && !counts && !head.querySelector('.of')) {
          problem(`column without a unit: ${title}: ${head.textContent}`);
        }
      });
    }
  };

  const contents = () => {
    const known = new Set();
    const fold = document.querySelector('details.contents');
    for (const link of fold.querySelectorAll('a')) {
      counts.links += 1;
      fold.open = true;
      const target = document.getElementById(link.hash.slice(1));
      if (!target) {
        problem(`link leads nowhere: ${link.textContent}`);
        continue;
      }
      known.add(target);
      link.click();
      const { top } = target.getBoundingClientRect();
      if (top < -1 || top > innerHeight) problem(`link does not show its section: ${link.textContent}, ${top}`);
      if (innerWidth < 800 && fold.open) problem('contents stay open on a narrow screen');
    }
    for (const heading of document.querySelectorAll('h2, h3')) {
      if (!known.has(heading)) problem(`no link leads to ${heading.textContent}`);
    }
    if (!known.size) problem('no contents');
    const side = getComputedStyle(document.querySelector('nav')).position;
    if ((side === 'sticky') !== (innerWidth >= 1080)) problem(`contents are ${side} at ${innerWidth}`);
  };

  const shown = (what, point) => {
    const tip = document.getElementById('tip');
    if (tip.hidden) return problem(`${what} shows nothing`);
    const box = tip.getBoundingClientRect();
    if (box.left < 0 || box.right > innerWidth || box.top < 0 || box.bottom > innerHeight) {
      problem(`${what} shows values outside of the window`);
    }
    for (const part of point ?? []) if (!tip.textContent.includes(part)) problem(`${what} does not show ${part}`);
  };

  const plots = () => {
    for (const svg of document.querySelectorAll('svg.plot')) {
      counts.plots += 1;
      svg.scrollIntoView({ block: 'center' });
      if (!svg.getAttribute('aria-label') || svg.getAttribute('role') !== 'img') problem('a plot has no label');
      const points = [...svg.querySelectorAll('use')].map((use) => ({
        parts: use.querySelector('title').textContent.split('\n'),
        x: Number(use.getAttribute('x')), y: Number(use.getAttribute('y')),
      }));
      if (!points.length) problem('a plot has no points');
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      const at = (point) => ({
        bubbles: true, clientX: box.left + point.x * scale, clientY: box.top + point.y * scale,
      });
      // The points of one size are shown together.
      const groups = Map.groupBy(points, (point) => point[svg.dataset.by]);
      for (const group of groups.values()) {
        counts.points += group.length;
        svg.dispatchEvent(new PointerEvent('pointermove', { ...at(group[0]), pointerType: 'mouse' }));
        shown('hover', group.flatMap((point) => point.parts));
      }
      overflow('with values shown');
      svg.dispatchEvent(new PointerEvent('pointerleave', { pointerType: 'mouse' }));
      const tip = document.getElementById('tip');
      if (!tip.hidden) problem('values stay after the pointer has left');
      svg.dispatchEvent(new PointerEvent('pointerdown', { ...at(points[0]), pointerType: 'touch' }));
      shown('tap', points[0].parts);
      document.body.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true, pointerType: 'touch' }));
      if (!tip.hidden) problem('values stay after a tap elsewhere');
      svg.focus({ preventScroll: true });
      if (document.activeElement !== svg) problem('a plot cannot be focused');
      for (const key of ['ArrowRight', 'End', 'ArrowLeft', 'Home']) {
        svg.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        shown(key);
      }
      svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
      if (!tip.hidden) problem('Escape hides nothing');
    }
  };

  // Contrast, by WCAG's relative luminance.
  const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color) => {
    const linear = channels(color).slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      const parts = channels(color);
      if (parts.length && (parts.length < 4 || parts[3] > 0)) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const colors = () => {
    const page = luminance(ground(document.body));
    if (dark ? page > 0.1 : page < 0.8) problem(`${dark ? 'dark' : 'light'} is not honored: ${ground(document.body)}`);
    const seen = new Set();
    for (const one of document.querySelectorAll('body *:not(script)')) {
      const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      const parent = one.parentElement;
      const key = `${one.tagName} ${one.getAttribute('class')} ${parent.tagName} ${parent.getAttribute('class')}`;
      if (!own || one.tagName === 'title' || seen.has(key)) continue;
      seen.add(key);
      const style = getComputedStyle(one);
      const [a, b] = [luminance(one.ownerSVGElement ? style.fill : style.color), luminance(ground(one))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5) problem(`contrast ${contrast.toFixed(2)}: ${key}: ${one.textContent.slice(0, 30)}`);
    }
  };

  const structure = () => {
    if (root.lang !== 'en') problem('no language');
    if (!document.title) problem('no title');
    if (document.querySelectorAll('h1').length !== 1) problem('not one h1');
  };

  addEventListener('load', () => setTimeout(() => {
    root.style.scrollBehavior = 'auto';
    if (innerWidth !== Number(asked.get('width'))) problem(`the window is ${innerWidth} wide`);
    if (matchMedia('(prefers-color-scheme: dark)').matches !== dark) problem('the browser has another color scheme');
    for (const check of [structure, () => overflow('at first'), contents, tables, () => overflow('with all tables open'),
      plots, colors]) {
      try { check(); } catch (error) { problem(`check failed: ${error.stack}`); }
    }
    // What was asked for is listed once it has failed.
    setTimeout(() => {
      requests();
      parent.postMessage({ name: asked.get('name'), problems, counts }, '*');
    }, 50);
  }, 0));
})();
