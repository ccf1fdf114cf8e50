// Elements of the page. Text from a run is only ever set as text, never as markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.includes("-") || name === "role") made.setAttribute(name, value);
        else made[name] = value;
    }
    made.append(...children);
    return made;
}

export function setText(node, text) {
    if (node.textContent !== text) node.textContent = text;
}

export function setData(node, name, value) {
    if (node.dataset[name] !== value) node.dataset[name] = value;
}

// Makes the children of a parent as many as the rows, and updates each; nothing else is touched,
// so that focus and selection stay where they are.
export function syncChildren(parent, rows, make, update) {
    while (parent.children.length > rows.length) parent.lastElementChild.remove();
    rows.forEach((row, index) => {
        let child = parent.children[index];
        if (!child) {
            child = make();
            parent.append(child);
        }
        update(child, row, index);
    });
}

// A table whose columns are {title, value(row), right, wide, head, fill(cell, row)}.
export function syncTable(table, columns, rows) {
    if (!table.tHead) {
        const head = table.createTHead().insertRow();
        for (const column of columns) {
            const cell = element("th", { scope: "col", textContent: column.title });
            if (column.right) cell.className = "right";
            head.append(cell);
        }
        table.append(document.createElement("tbody"));
    }
    const make = () => {
        const row = document.createElement("tr");
        for (const column of columns) {
            const cell = column.head
                ? element("th", { scope: "row" })
                : document.createElement("td");
            if (column.right) cell.className = "right";
            if (column.wide) cell.className = "wide";
            row.append(cell);
        }
        return row;
    };
    syncChildren(table.tBodies[0], rows, make, (line, row) => {
        columns.forEach((column, index) => {
            if (column.fill) column.fill(line.children[index], row);
            else setText(line.children[index], column.value(row));
        });
    });
}

// Buttons of which one is pressed.
export function choice(parent, names, chosen, onChoice) {
    const buttons = names.map(([value, text]) => {
        const button = element("button", { type: "button", textContent: text });
        button.addEventListener("click", () => {
            press(value);
            onChoice(value);
        });
        return [value, button];
    });
    const press = (value) => {
        for (const [each, button] of buttons)
            button.setAttribute("aria-pressed", String(each === value));
    };
    press(chosen);
    parent.append(...buttons.map(([, button]) => button));
}

export function check(parent, text, checked, onChange) {
    const input = element("input", { type: "checkbox", checked });
    input.addEventListener("change", () => onChange(input.checked));
    parent.append(element("label", {}, input, ` ${text}`));
}
