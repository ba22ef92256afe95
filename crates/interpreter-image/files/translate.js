// Turns a cell into a function: declarations at the top become globals, imports become dynamic,
// and the value of the last expression is what the function answers.
'use strict';

const { parse } = require('./acorn.js');
const { stripTypeScriptTypes } = require('node:module');

const BEGIN = '(async () => { ';
const OPTIONS = {
  ecmaVersion: 'latest',
  sourceType: 'module',
  allowAwaitOutsideFunction: true,
  allowReturnOutsideFunction: false,
  allowHashBang: true,
};

function read(code) {
  try {
    return { code, body: parse(code, OPTIONS).body };
  } catch (asJavaScript) {
    // The first way keeps every line where it is; the second knows enumerations too.
    for (const mode of ['strip', 'transform']) {
      try {
        const stripped = stripTypeScriptTypes(code, { mode });
        return { code: stripped, body: parse(stripped, OPTIONS).body };
      } catch {
        // Told below in the words of JavaScript.
      }
    }
    throw new SyntaxError(asJavaScript.message);
  }
}

/** The names that a pattern binds. */
function names(pattern) {
  switch (pattern?.type) {
    case 'Identifier':
      return [pattern.name];
    case 'ObjectPattern':
      return pattern.properties.flatMap((p) => names(p.value ?? p.argument));
    case 'ArrayPattern':
      return pattern.elements.flatMap(names);
    case 'AssignmentPattern':
      return names(pattern.left);
    case 'RestElement':
      return names(pattern.argument);
    default:
      return [];
  }
}

function importing({ specifiers, source, attributes }) {
  const wanted = attributes?.length
    ? `, { with: { ${attributes.map((a) => `${a.key.raw ?? a.key.name}: ${a.value.raw}`)} } }`
    : '';
  const module = `await import(${source.raw}${wanted})`;
  if (specifiers.length === 0) return { text: `${module};`, bound: [] };
  const text = specifiers.map(({ type, local, imported }) => {
    if (type === 'ImportNamespaceSpecifier') return `${local.name} = module;`;
    const name = imported ? JSON.stringify(imported.name ?? imported.value) : '"default"';
    return `${local.name} = module[${name}];`;
  });
  const bound = specifiers.map(({ local }) => local.name);
  return { text: `{ const module = ${module}; ${text.join(' ')} }`, bound };
}

/** What a statement becomes, the names it binds, and what must come before all. */
function rewrite(node, code, isLast) {
  const source = (part) => code.slice(part.start, part.end);
  switch (node.type) {
    case 'ImportDeclaration':
      return importing(node);
    case 'VariableDeclaration': {
      const text = node.declarations.map(({ id, init }) =>
        init ? `${source(id)} = ${source(init)}` : `${source(id)} = undefined`,
      );
      const bound = node.declarations.flatMap(({ id }) => names(id));
      return { text: `void (${text.join(', ')});`, bound };
    }
    case 'FunctionDeclaration':
      return { text: source(node), bound: [], first: `globalThis.${node.id.name} = ${node.id.name};` };
    case 'ClassDeclaration':
      return { text: `${node.id.name} = ${source(node)};`, bound: [node.id.name] };
    case 'ExportNamedDeclaration':
      return node.declaration ? rewrite(node.declaration, code, false) : { text: '', bound: [] };
    case 'ExportDefaultDeclaration': {
      const isNamed = node.declaration.id && /Declaration$/.test(node.declaration.type);
      if (isNamed) return rewrite(node.declaration, code, false);
      return { text: `return { value: (${source(node.declaration)}) };`, bound: [] };
    }
    case 'ExpressionStatement':
      if (isLast) return { text: `return { value: (${source(node.expression)}) };`, bound: [] };
  }
  return { text: source(node), bound: [] };
}

/**
 * The program and the names that it binds. Every statement stays on the line where it was, so that
 * errors name the right one.
 */
function translate(given) {
  const { code, body } = read(given);
  let [text, at] = ['', 0];
  const [bound, first] = [new Set(), []];
  body.forEach((node, index) => {
    const made = rewrite(node, code, index === body.length - 1);
    made.bound.forEach((name) => bound.add(name));
    if (made.first) first.push(made.first);
    const lines = (part) => part.split('\n').length;
    const lost = lines(code.slice(node.start, node.end)) - lines(made.text);
    text += code.slice(at, node.start) + made.text + '\n'.repeat(Math.max(lost, 0));
    at = node.end;
  });
  text += code.slice(at);
  return { source: `${BEGIN}${first.join(' ')} ${text}\n})()`, bound: [...bound] };
}

module.exports = { translate };
