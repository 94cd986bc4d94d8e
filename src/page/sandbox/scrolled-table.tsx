import type { ComponentChildren } from 'preact';

/** A scrollable table; `of` is the ID of its heading. */
export function ScrolledTable({
  of,
  columns,
  empty,
  children,
}: {
  of: string;
  columns: readonly string[];
  /** Text shown if the table is empty. */
  empty: string | false;
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard
    <section class="scroll" tabIndex={0} aria-labelledby={of}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
      {empty && <p class="soft">{empty}</p>}
    </section>
  );
}
