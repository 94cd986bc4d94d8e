import type { StatusReport } from '../../ops/status-report.ts';
import { Shape } from '../parts/shape.tsx';
import { eventLinks, type FlowLink, valueLinks } from './flow.ts';

/** How it is, in three seconds from two metres: each part of a value's and of an event's way, in a word, a colour and a shape. */
export function FlowPicture({ now }: { now: StatusReport }) {
  return (
    <section class="flow" aria-label="how values and events flow">
      <Way links={valueLinks(now)} />
      <Way links={eventLinks(now)} />
    </section>
  );
}

function Way({ links }: { links: FlowLink[] }) {
  return (
    <ol>
      {links.map((link, at) => (
        <li key={link.to} aria-label={`${link.from} to ${link.to}`}>
          {at === 0 && <span class="node">{link.from}</span>}
          <span class={`link ${link.kind}`} title={link.why}>
            <strong>
              <Shape name={link.kind} /> {link.words ?? link.kind}
            </strong>
            <span class="arrow" aria-hidden="true" />
            <span class="rate">{link.rate}</span>
            {link.why && <span class="why">{link.why}</span>}
          </span>
          <span class="node">{link.to}</span>
        </li>
      ))}
    </ol>
  );
}
