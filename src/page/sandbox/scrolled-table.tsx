import type { ComponentChildren } from 'preact';

/** A table that scrolls in its place, by keyboard too; `of` is the id of the heading that names it. */
export function ScrolledTable({
  of,
  columns,
  empty,
  children,
}: {
  of: string;
  columns: readonly string[];
  /** What to say while it has no rows. */
  empty: string | false;
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reached by keyboard
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
