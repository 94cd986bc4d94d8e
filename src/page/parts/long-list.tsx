import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export interface LongListProps<Item> {
  label: string;
  items: readonly Item[];
  /** Height of every row in pixels. */
  rowHeight: number;
  children(item: Item): ComponentChildren;
}

/** Rows rendered above and below the visible ones. */
const SPARE_ROWS = 8;
/** Scrolling by fewer rows does not trigger a render. */
const STEP_ROWS = 4;

/** A list that renders only the visible rows. */
export function LongList<Item>({ label, items, rowHeight, children }: LongListProps<Item>) {
  const place = useRef<HTMLElement>(null);
  const [visible, setVisible] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = place.current!;
    const step = STEP_ROWS * rowHeight;
    const update = () => {
      const now = { top: Math.floor(element.scrollTop / step) * step, height: element.clientHeight + step };
      setVisible((before) => (before.top === now.top && before.height === now.height ? before : now));
    };
    update();
    element.addEventListener('scroll', update, { passive: true });
    const observer = new ResizeObserver(update);
    observer.observe(element);
    return () => {
      element.removeEventListener('scroll', update);
      observer.disconnect();
    };
  }, []);
  const first = Math.max(0, Math.floor(visible.top / rowHeight) - SPARE_ROWS);
  const last = Math.min(items.length, Math.ceil((visible.top + visible.height) / rowHeight) + SPARE_ROWS);
  // Row elements that scroll out of view at one end are reused at the other.
  const places = Math.ceil(visible.height / rowHeight) + 2 * SPARE_ROWS + 2;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard
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
