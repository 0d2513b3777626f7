"use strict";
const boxes = [...document.querySelectorAll("figure input")];
const said = document.querySelector("#bar output");
const chosen = () => [...new Set(boxes.filter((box) => box.checked).map((box) => box.value))];

function tell(more) {
  said.textContent = `${chosen().length} selected${more ? `; ${more}` : ""}`;
}

// An image that is on the page twice is selected once.
function select(some, checked) {
  const ids = new Set(some.map((box) => box.value));
  for (const box of boxes) if (ids.has(box.value)) box.checked = checked;
  tell();
}

async function copy(text, name) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page of a server without TLS has no clipboard.
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  tell(`copied ${name}`);
}

function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = "ids.txt";
  link.click();
  tell(`saved ${name}`);
}

function act(button) {
  const what = button.dataset.do;
  if (what === "name") return copy(button.title, "the name");
  if (what === "all" || what === "none") return select(boxes, what === "all");
  if (what === "group") {
    const group = [...button.closest("section").querySelectorAll("input")];
    return select(group, !group.every((box) => box.checked));
  }
  const ids = chosen();
  const lines = ids.filter((id) => !/[\n\r]/.test(id));
  const odd = ids.length - lines.length;
  const name = `${lines.length} ids${odd ? `, without ${odd} that have a line break` : ""}`;
  return (what === "save" ? save : copy)(lines.map((id) => `${id}\n`).join(""), name);
}

document.addEventListener("change", (event) => select([event.target], event.target.checked));
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) act(button);
});
tell();
