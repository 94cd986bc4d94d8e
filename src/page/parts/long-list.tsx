import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export interface LongListProps<Item> {
  label: string;
  items: readonly Item[];
  /** In pixels: every row is as high. */
  rowHeight: number;
  children(item: Item): ComponentChildren;
}

/** Above and below what is seen. */
const SPARE_ROWS = 8;
/** Scrolled by less, the spare rows suffice. */
const STEP_ROWS = 4;

/** A list of which only what is seen stands in the page, however long it is. */
export function LongList<Item>({ label, items, rowHeight, children }: LongListProps<Item>) {
  const place = useRef<HTMLElement>(null);
  const [seen, see] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = place.current!;
    const step = STEP_ROWS * rowHeight;
    const look = () => {
      const now = { top: Math.floor(element.scrollTop / step) * step, height: element.clientHeight + step };
      see((before) => (before.top === now.top && before.height === now.height ? before : now));
    };
    look();
    element.addEventListener('scroll', look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => {
      element.removeEventListener('scroll', look);
      observer.disconnect();
    };
  }, []);
  const first = Math.max(0, Math.floor(seen.top / rowHeight) - SPARE_ROWS);
  const last = Math.min(items.length, Math.ceil((seen.top + seen.height) / rowHeight) + SPARE_ROWS);
  // A row that leaves at one end comes back at the other: nothing is made anew while somebody scrolls.
  const places = Math.ceil(seen.height / rowHeight) + 2 * SPARE_ROWS + 2;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled has to be reached by the keyboard
    <section class="long-list" ref={place} aria-label={label} tabIndex={0}>
      <ul style={{ height: `${items.length * rowHeight}px` }}>
        {items.slice(first, last).map((item, at) => (
          <li
            key={(first + at) % places}
            aria-setsize={items.length}
            aria-posinset={first + at + 1}
            style={{ top: `${(first + at) * rowHeight}px`, height: `${rowHeight}px` }}
          >
            {children(item)}
          </li>
        ))}
      </ul>
    </section>
  );
}
