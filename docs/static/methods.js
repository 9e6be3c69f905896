// Filters the rows of the list of methods; without scripts the whole list is shown.
const form = document.querySelector("form.filters");
const rows = [...document.querySelectorAll("article table tbody tr")];

function fits(wanted, text) {
  if (wanted === "") return true;
  if (wanted.startsWith("-")) return text !== wanted.slice(1);
  if (wanted.startsWith("<")) return Number(text) <= Number(wanted.slice(1)); // NaN with Kronecker factors
  return text === wanted;
}

function filter() {
  const chosen = [...form.querySelectorAll("select")];
  for (const row of rows)
    row.hidden = !chosen.every((one) => fits(one.value, row.cells[one.dataset.column].textContent.trim()));
  form.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} methods`;
}

form.hidden = false;
form.addEventListener("change", filter);
filter();
