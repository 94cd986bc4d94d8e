/** One of a few, all of them seen at once. */
export function Choice<Option extends string>({
  label,
  options,
  chosen,
  choose,
}: {
  label: string;
  options: readonly Option[];
  chosen: Option;
  choose(option: Option): void;
}) {
  return (
    <fieldset class="choice">
      <legend class="unseen">{label}</legend>
      {options.map((option) => (
        <button key={option} type="button" aria-pressed={option === chosen} onClick={() => choose(option)}>
          {option}
        </button>
      ))}
    </fieldset>
  );
}
