// The search of the site: every word of the query stands in a section. A script holds the index, so it works from the disk.
(function () {
  var results = document.getElementById("mkdocs-search-results");
  if (!results) return;
  var input = document.querySelector("#content_search input") || document.getElementById("mkdocs-search-query");

  function count(text, word) {
    return text.split(word).length - 1;
  }

  function score(section, words) {
    var total = 0;
    for (var n = 0; n < words.length; n++) {
      var inTitle = count(section.low_title, words[n]);
      var inText = count(section.low_text, words[n]);
      if (!inTitle && !inText) return 0;
      total += 2 * Math.min(inTitle, 1) + inText / (inText + 1 + section.text.length / 1000);
    }
    return total;
  }

  function excerpt(text, word) {
    var at = text.toLowerCase().indexOf(word);
    var from = Math.max(0, at - 80);
    return (from ? "… " : "") + text.slice(from, from + 240) + (from + 240 < text.length ? " …" : "");
  }

  function add(tag, text, parent) {
    var node = parent.appendChild(document.createElement(tag));
    node.textContent = text;
    return node;
  }

  function show(query) {
    var words = query.toLowerCase().split(/\s+/).filter(Boolean);
    results.textContent = "";
    if (!words.length) return;
    var found = search_docs
      .map(function (section) { return [score(section, words), section]; })
      .filter(function (pair) { return pair[0] > 0; })
      .sort(function (a, b) { return b[0] - a[0]; });
    add("p", found.length ? found.length + " sections" : "No section has all of these words.", results);
    found.slice(0, 50).forEach(function (pair) {
      var article = results.appendChild(document.createElement("article"));
      var link = add("a", pair[1].title, add("h3", "", article));
      link.href = base_url + "/" + pair[1].location;
      add("p", pair[1].location.split("#")[0], article).className = "place";
      add("p", excerpt(pair[1].text, words[0]), article);
    });
  }

  var script = document.createElement("script");
  script.src = base_url + "/search/index.js";
  script.onload = function () {
    search_docs.forEach(function (section) {
      section.low_title = section.title.toLowerCase();
      section.low_text = section.text.toLowerCase();
    });
    var query = new URLSearchParams(window.location.search).get("q") || "";
    input.value = query;
    show(query);
    input.addEventListener("input", function () { show(input.value); });
  };
  document.head.appendChild(script);
})();
