// Before a query reaches the search: `--rerun` would mean "without rerun", and "stop a run" all words that
// begin with an a.
const SMALL = new Set(
  "a an and are as can do does for how i in is it my of on the to what when which why with".split(" ")
)

function words(query) {
  const all = query.replace(/(^|\s)-+(?=\w)/g, "$1").split(/\s+/)
  const telling = all.filter(word => !SMALL.has(word.toLowerCase()))
  return (telling.some(Boolean) ? telling : all).join(" ")
}

const send = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  const isQuery = typeof message?.data === "string"
  return send.call(this, isQuery ? { ...message, data: words(message.data) } : message, ...rest)
}
